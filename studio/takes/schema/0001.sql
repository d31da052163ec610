CREATE TABLE take (
    id         TEXT PRIMARY KEY,
    client     TEXT NOT NULL,                           -- whose it is: the name in the fair queue
    created_s  REAL NOT NULL,                           -- Unix time
    voice      TEXT NOT NULL,                           -- id of the voice, which may be gone
    voice_name TEXT NOT NULL,
    voice_key  TEXT NOT NULL,                           -- of the prompt: clip, transcript and models
    model      TEXT NOT NULL,
    request    TEXT NOT NULL,                           -- JSON of the synthesis request, without voice and client
    text       TEXT NOT NULL,                           -- of the request, to be searched
    seed       INTEGER NOT NULL,
    spoken     TEXT NOT NULL,                           -- JSON: speech tokens, segment by segment
    audio_s    REAL NOT NULL,
    lufs       REAL NOT NULL,
    peak_dbfs  REAL NOT NULL,
    size_bytes INTEGER NOT NULL,                        -- of the sound in sound/ID.flac and of the tokens
    starred    INTEGER NOT NULL DEFAULT 0,
    line       TEXT NOT NULL DEFAULT ''                 -- the script line that it is kept for
);
CREATE INDEX take_client ON take (client, created_s);
CREATE INDEX take_line ON take (line) WHERE line <> '';
