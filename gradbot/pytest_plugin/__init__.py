"""A pytest plugin that records inputs and checks gradcheck calls, when it is asked to and only then."""
