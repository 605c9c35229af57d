-- What a search may be narrowed to, as words of the index: kind, sort, severity, year and month. U+E000 begins each of
-- them, which no word of a text does; blanks would make two words of one.
ALTER TABLE records ADD COLUMN facets TEXT GENERATED ALWAYS AS (
    char(57344) || 'k' || provider || ' ' || char(57344) || 's' || replace(subtype, ' ', '')
    || coalesce(' ' || char(57344) || 'v' || replace(severity, ' ', ''), '')
    || CASE WHEN coalesce(modified, published) IS NULL THEN '' ELSE
        ' ' || char(57344) || 'y' || substr(max(coalesce(modified, ''), coalesce(published, '')), 1, 4)
        || ' ' || char(57344) || 'm' || substr(max(coalesce(modified, ''), coalesce(published, '')), 1, 4)
        || substr(max(coalesce(modified, ''), coalesce(published, '')), 6, 2) END
) VIRTUAL;

DROP TABLE search;
-- Records are ranked outside (rank.rs), so that nobody needs the lengths the index would keep.
CREATE VIRTUAL TABLE search USING fts5 (title, text, facets, content='records', content_rowid='id', columnsize=0);
INSERT INTO search (search, rank) VALUES ('automerge', 16);
INSERT INTO search (search) VALUES ('rebuild');
