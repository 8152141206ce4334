from tests.harness.clocks import SteppedClock
from threefs.telemetry.event_trace import EventTrace


def test_events_of_a_key_in_order() -> None:
    story = EventTrace(clock=SteppedClock())
    story.add("chunk", "staged", version=1)
    story.add("other", "staged", version=9)
    story.add("chunk", "committed", version=1)
    assert [(event.what, event.facts) for event in story.of("chunk")] == [
        ("staged", {"version": 1}),
        ("committed", {"version": 1}),
    ]
    assert story.of("nobody") == []


def test_a_story_is_bounded_in_keys_and_events() -> None:
    story = EventTrace(keys=2, events=3)
    for number in range(10):
        story.add("old", "event", number=number)
    assert [event.facts["number"] for event in story.of("old")] == [7, 8, 9]
    story.add("new", "event")
    story.add("old", "event", number=10)
    story.add("newest", "event")
    assert story.of("new") == [], "the key that was touched first of all goes"
    assert story.of("old") and story.of("newest")
