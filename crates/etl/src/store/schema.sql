CREATE TABLE providers (
    id TEXT PRIMARY KEY,
    provider_type TEXT NOT NULL,
    state TEXT NOT NULL,
    run_id TEXT,
    failures INTEGER NOT NULL DEFAULT 0,
    deadline_ms INTEGER,
    pause_wish INTEGER NOT NULL DEFAULT 0,
    processed_count INTEGER NOT NULL DEFAULT 0,
    error_count INTEGER NOT NULL DEFAULT 0,
    last_checkpoint TEXT,
    permits_held INTEGER NOT NULL DEFAULT 0,
    permits_wanted INTEGER NOT NULL DEFAULT 0,
    permits_revoked INTEGER NOT NULL DEFAULT 0,
    permits_why TEXT,
    created_ms INTEGER NOT NULL,
    updated_ms INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE macro (
    id TEXT PRIMARY KEY,
    state TEXT NOT NULL,
    created_ms INTEGER NOT NULL,
    updated_ms INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE runs (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    provider TEXT NOT NULL,
    source TEXT NOT NULL,
    started_ms INTEGER NOT NULL,
    ended_ms INTEGER,
    outcome TEXT,
    reason TEXT,
    read INTEGER NOT NULL DEFAULT 0,
    stored INTEGER NOT NULL DEFAULT 0,
    unchanged INTEGER NOT NULL DEFAULT 0,
    dead_lettered INTEGER NOT NULL DEFAULT 0,
    skipped INTEGER NOT NULL DEFAULT 0
);

CREATE TABLE skips (
    run_id TEXT NOT NULL,
    reason TEXT NOT NULL,
    count INTEGER NOT NULL,
    PRIMARY KEY (run_id, reason)
) WITHOUT ROWID;

-- Where the next run of a provider goes on; a source of another name begins anew.
CREATE TABLE cursors (
    provider TEXT NOT NULL,
    source TEXT NOT NULL,
    cursor TEXT NOT NULL,
    PRIMARY KEY (provider, source)
) WITHOUT ROWID;

CREATE TABLE sources (
    id INTEGER PRIMARY KEY,
    run_id TEXT NOT NULL,
    location TEXT NOT NULL,
    checksum TEXT,
    fetched_ms INTEGER NOT NULL,
    UNIQUE (run_id, location)
);

CREATE TABLE records (
    id INTEGER PRIMARY KEY,
    urn TEXT NOT NULL UNIQUE,
    provider TEXT NOT NULL,
    title TEXT NOT NULL,
    text TEXT NOT NULL,
    published TEXT,
    modified TEXT,
    status TEXT,
    severity TEXT,
    details TEXT NOT NULL,
    raw BLOB NOT NULL,
    hash BLOB NOT NULL,
    version INTEGER NOT NULL
);

-- Earlier versions, each with what the following one changed.
CREATE TABLE record_versions (
    urn TEXT NOT NULL,
    version INTEGER NOT NULL,
    changed TEXT NOT NULL,
    title TEXT NOT NULL,
    text TEXT NOT NULL,
    published TEXT,
    modified TEXT,
    status TEXT,
    severity TEXT,
    details TEXT NOT NULL,
    raw BLOB NOT NULL,
    source_id INTEGER,
    run_id TEXT,
    PRIMARY KEY (urn, version)
);

CREATE TABLE provenance (
    record_id INTEGER PRIMARY KEY,
    source_id INTEGER NOT NULL,
    position INTEGER NOT NULL,
    run_id TEXT NOT NULL,
    stored_ms INTEGER NOT NULL
);

CREATE TABLE links (
    from_urn TEXT NOT NULL,
    kind TEXT NOT NULL,
    to_urn TEXT NOT NULL,
    PRIMARY KEY (from_urn, kind, to_urn)
) WITHOUT ROWID;
CREATE INDEX links_back ON links (to_urn);

CREATE VIRTUAL TABLE search USING fts5 (title, text, content='records', content_rowid='id');

CREATE TABLE dead_letters (
    id INTEGER PRIMARY KEY,
    provider TEXT NOT NULL,
    hash BLOB NOT NULL,
    run_id TEXT NOT NULL,
    source_id INTEGER NOT NULL,
    position INTEGER NOT NULL,
    reason TEXT NOT NULL,
    raw BLOB NOT NULL,
    at_ms INTEGER NOT NULL,
    UNIQUE (provider, hash)
);

CREATE TABLE events (
    seq INTEGER PRIMARY KEY,
    at_ms INTEGER NOT NULL,
    provider TEXT NOT NULL,
    run_id TEXT,
    kind TEXT NOT NULL,
    detail TEXT NOT NULL
);

CREATE TABLE history (
    seq INTEGER PRIMARY KEY,
    at_ms INTEGER NOT NULL,
    machine TEXT NOT NULL,
    run_id TEXT,
    from_state TEXT NOT NULL,
    to_state TEXT NOT NULL,
    cause TEXT NOT NULL
);

CREATE TABLE checkpoints (
    seq INTEGER PRIMARY KEY,
    urn TEXT NOT NULL,
    provider_id TEXT NOT NULL,
    processed_ms INTEGER NOT NULL,
    success INTEGER NOT NULL,
    error_message TEXT
);
