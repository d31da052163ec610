-- What was chosen in the rounds of the headphone check, of all tries; a trial's time runs from when it was first shown.
ALTER TABLE rater ADD COLUMN tones TEXT NOT NULL DEFAULT '[]';  -- JSON: places from 0
ALTER TABLE progress DROP COLUMN served_s;
