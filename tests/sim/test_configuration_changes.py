"""A configuration that changes while there are faults, and who draws it."""

from tests.harness.seeded_random import SeededRandom
from tests.sim import run_shape
from tests.sim.configuration_changes import VALUES
from tests.sim.run import run
from threefs.configuration import KEYS, parse, text_of


def test_a_tenth_of_all_seeds_has_one_and_running_processes_take_it() -> None:
    tuned = [seed for seed in range(1000) if run_shape.draw(SeededRandom(seed, "run"), seed)[0].tuned]
    assert 60 < len(tuned) < 140
    outcome = run(tuned[0], logs=True)
    assert not outcome.violations, outcome.violations
    applied = [line for line in outcome.trace if "the configuration is applied" in line]
    assert {line.split()[1].split(".")[0] for line in applied} >= {"s1", "s2"}


def test_each_value_may_be_set_while_processes_run() -> None:
    for name, values in VALUES.items():
        assert KEYS[name].is_hot and all(parse(KEYS[name], text_of(value)) == value for value in values)
