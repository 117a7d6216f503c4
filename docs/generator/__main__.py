"""`python -m docs.generator` regenerates the tables in the pages."""

from docs.generator.pages import main

main()
