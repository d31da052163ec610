-- What people write about a voice, what it is designed of, and its way back after a deletion. The table is made anew:
-- the name of a deleted voice is free for another, which a UNIQUE column would not allow.
CREATE TABLE voice_next (
    id         TEXT PRIMARY KEY,
    name       TEXT COLLATE NOCASE,                     -- NULL while the voice is a draft
    origin     TEXT NOT NULL CHECK (origin IN ('starter', 'user', 'draft')),
    transcript TEXT NOT NULL,
    language   TEXT NOT NULL DEFAULT '',
    consent    TEXT NOT NULL DEFAULT '',
    details    TEXT NOT NULL DEFAULT '',
    clip       TEXT NOT NULL,
    clip_s     REAL NOT NULL,
    created_s  REAL NOT NULL,
    tags       TEXT NOT NULL DEFAULT '[]',              -- JSON list
    notes      TEXT NOT NULL DEFAULT '',
    audition   TEXT NOT NULL DEFAULT '',                -- the sentence to try it with
    defaults   TEXT NOT NULL DEFAULT '{}',              -- JSON: fields of a speech request that names none
    parts      TEXT NOT NULL DEFAULT '[]',              -- JSON: the voices blended into it
    deleted_s  REAL                                     -- Unix time; such a voice can be restored for a day
);
INSERT INTO voice_next (id, name, origin, transcript, language, consent, details, clip, clip_s, created_s)
    SELECT id, name, origin, transcript, language, consent, details, clip, clip_s, created_s FROM voice;
DROP TABLE voice;
ALTER TABLE voice_next RENAME TO voice;
CREATE UNIQUE INDEX voice_name ON voice (name) WHERE deleted_s IS NULL;
CREATE INDEX voice_origin ON voice (origin, created_s);
