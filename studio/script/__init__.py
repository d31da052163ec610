"""Scripts: many lines in many voices, made in order of hearing, exported with true times. A batch is a script too."""
