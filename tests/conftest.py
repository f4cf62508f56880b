from hypothesis import settings

# No deadline, since shared machines stall; the same examples every run, so that a failure repeats.
settings.register_profile("covshift", deadline=None, derandomize=True, max_examples=40)
settings.load_profile("covshift")
