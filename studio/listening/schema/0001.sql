-- Later versions are numbered files beside this one, applied in order; PRAGMA user_version says which.
CREATE TABLE test (
    id        TEXT PRIMARY KEY,
    owner     TEXT NOT NULL,                    -- hash of the owner's key
    design    TEXT NOT NULL,                    -- JSON
    state     TEXT NOT NULL CHECK (state IN ('draft', 'open', 'closed')),
    problem   TEXT NOT NULL DEFAULT '',         -- why the studio could not make the material, a sentence
    created_s REAL NOT NULL                     -- Unix time, as all of them
);
CREATE TABLE clip (
    test      TEXT NOT NULL REFERENCES test (id) ON DELETE CASCADE,
    item      TEXT NOT NULL,
    condition TEXT NOT NULL,
    stage     TEXT NOT NULL CHECK (stage IN ('given', 'ready')),  -- as it came; as raters hear it
    file      TEXT NOT NULL,                    -- random name below files/TEST
    samples   INTEGER NOT NULL,
    rate_hz   INTEGER NOT NULL,
    text      TEXT NOT NULL DEFAULT '',         -- what is said in it
    PRIMARY KEY (test, item, condition, stage)
);
CREATE TABLE invitation (
    token     TEXT PRIMARY KEY,
    test      TEXT NOT NULL REFERENCES test (id) ON DELETE CASCADE,
    name      TEXT NOT NULL DEFAULT '',         -- of the one rater it is for; '' for whoever has the link
    expires_s REAL NOT NULL,
    created_s REAL NOT NULL
);
CREATE TABLE rater (
    id         TEXT PRIMARY KEY,
    test       TEXT NOT NULL REFERENCES test (id) ON DELETE CASCADE,
    invitation TEXT NOT NULL,
    number     INTEGER NOT NULL,                -- the place in the balanced orders
    secret     TEXT NOT NULL,                   -- hash of the key in the rater's cookie
    name       TEXT NOT NULL DEFAULT '',
    plan       TEXT NOT NULL,                   -- JSON: the trials, so that a resumed session is the same one
    headphones INTEGER,                         -- right answers of six
    joined_s   REAL NOT NULL,                   -- also when consent was given
    finished_s REAL,
    comment    TEXT NOT NULL DEFAULT '',
    UNIQUE (test, number)
);
CREATE TABLE progress (
    rater    TEXT NOT NULL REFERENCES rater (id) ON DELETE CASCADE,
    position INTEGER NOT NULL,                  -- of the trial, from 0
    first_s  REAL NOT NULL,                     -- when its clips were first asked for
    served_s REAL NOT NULL,                     -- and last
    fetched  INTEGER NOT NULL DEFAULT 0,        -- bit n: clip n was fetched
    draft    TEXT NOT NULL DEFAULT '{}',        -- JSON: what was set before it was sent off
    ended    TEXT NOT NULL DEFAULT '' CHECK (ended IN ('', 'answered', 'timeout')),
    PRIMARY KEY (rater, position)
);
CREATE TABLE answer (
    test      TEXT NOT NULL REFERENCES test (id) ON DELETE CASCADE,
    rater     TEXT NOT NULL REFERENCES rater (id) ON DELETE CASCADE,
    position  INTEGER NOT NULL,
    condition TEXT NOT NULL,
    body      TEXT NOT NULL,                    -- JSON: the row of the long format
    PRIMARY KEY (rater, position, condition)
);
