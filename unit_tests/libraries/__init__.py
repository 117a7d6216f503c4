"""What libraries do that the connector works around, shown without the workaround.

A test here that fails after an update means that the library was changed: remove the workaround, its row in
docs/code/workarounds.md and the test.
"""
