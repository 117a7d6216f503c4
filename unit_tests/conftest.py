"""What all unit tests share."""

import os

from hypothesis import settings

# Laws are tried on new examples at every run; where a run decides whether a change lands, on the same ones each time.
# How long a busy machine takes for an example says nothing.
settings.register_profile("connector", deadline=None, derandomize="CI" in os.environ)
settings.load_profile("connector")
