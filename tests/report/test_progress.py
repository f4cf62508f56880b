import io

from rich.console import Console

from covshift.progress import counter, track


class Clock:
    """Time that passes when it is told to."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_off_a_terminal_a_line_is_printed_every_ten_seconds() -> None:
    text, clock = io.StringIO(), Clock()
    with counter(Console(file=text, width=200), "steps", 1000, clock) as advance:
        for _ in range(40):
            clock.now += 0.75
            advance(15)
    # The 14th step is the first after ten seconds: 14 · 15 steps in 10.5 s, and so the next 14; 12 are left.
    assert text.getvalue().splitlines() == [
        "steps: 210 of 1,000, 20.0/s, 0:00:40 left",
        "steps: 420 of 1,000, 20.0/s, 0:00:29 left",
        "steps: 1,000 in 30 s, 33.3/s",
    ]


def test_a_rate_is_that_since_the_last_line() -> None:
    text, clock = io.StringIO(), Clock()
    with counter(Console(file=text, width=200), "steps", 1000, clock) as advance:
        advance(500)  # Found finished, at once.
        clock.now += 10.0
        advance(0)
        clock.now += 10.0
        advance(100)
        clock.now += 10.0
        advance(0)
    lines = text.getvalue().splitlines()
    assert lines[1] == "steps: 600 of 1,000, 10.0/s, 0:00:40 left"
    assert lines[2] == "steps: 600 of 1,000, 0.0/s, unknown time left"


def test_a_finished_bar_is_full() -> None:
    text = io.StringIO()
    console = Console(file=text, force_terminal=True, width=120)
    assert list(track(console, "steps", range(7), 7)) == list(range(7))
    assert "7/7" in text.getvalue()


def test_the_time_left_of_uneven_steps_follows_from_all_of_them() -> None:
    text, clock = io.StringIO(), Clock()
    with counter(Console(file=text, width=200), "claims", 40, clock, steady=True) as advance:
        clock.now += 10.0
        advance(10)
        clock.now += 30.0
        advance(10)
    assert text.getvalue().splitlines()[:2] == [
        "claims: 10 of 40, 1.0/s, 0:00:30 left",
        "claims: 20 of 40, 0.5/s, 0:00:40 left",
    ]
