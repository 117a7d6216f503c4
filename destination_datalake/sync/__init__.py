"""The stages of a sync: read stdin, buffer records, encode and commit batches, emit states, and report the outcome."""
