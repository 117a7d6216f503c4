"""`python -m docs.generator` writes the tables anew."""

from docs.generator.pages import main

main()
