"""Where the data of a table lies, and how it is arranged there."""
