-- Voices: what is known of each, and the clip it is made from.
CREATE TABLE voice (
    id         TEXT PRIMARY KEY,
    name       TEXT UNIQUE COLLATE NOCASE,              -- NULL while the voice is a draft
    origin     TEXT NOT NULL CHECK (origin IN ('starter', 'user', 'draft')),
    transcript TEXT NOT NULL,
    language   TEXT NOT NULL DEFAULT '',
    consent    TEXT NOT NULL DEFAULT '',
    details    TEXT NOT NULL DEFAULT '',                -- source and licence of a starter, a description of others
    clip       TEXT NOT NULL,                           -- content hash; the sound lies in clips/HASH.flac
    clip_s     REAL NOT NULL,
    created_s  REAL NOT NULL                            -- Unix time
);
CREATE INDEX voice_origin ON voice (origin, created_s);
