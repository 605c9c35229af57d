-- What a record is among those of its kind. Records of an earlier program are of kinds that have only one.
ALTER TABLE records ADD COLUMN subtype TEXT NOT NULL DEFAULT '';
UPDATE records SET subtype = CASE provider WHEN 'asvs' THEN 'requirement' ELSE 'vulnerability' END;
CREATE INDEX records_subtype ON records (provider, subtype);
