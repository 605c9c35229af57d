-- The last event the macro machine has taken; younger ones are its queue.
ALTER TABLE macro ADD COLUMN events_handled INTEGER NOT NULL DEFAULT 0;
UPDATE macro SET events_handled = (SELECT coalesce(max(seq), 0) FROM events);

-- A run that tries dead letters once more reads no source: it neither satisfies a dependency nor makes one stale.
ALTER TABLE runs ADD COLUMN is_retry INTEGER NOT NULL DEFAULT 0;

-- Many small pieces of the index before they are merged: bulk loading writes each word fewer times.
INSERT INTO search (search, rank) VALUES ('automerge', 16);
