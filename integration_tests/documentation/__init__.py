"""Pages whose commands are executed: each block in order, in one shell, and what it prints is what the page says."""
