"""Faults for converted scripts: what a converter, or a person, gets wrong, at every place where it can be got wrong.

Each mutator goes through one file of a golden and gives the file's text with one fault in it. None knows a script. A
change that is no fault at a place says so by a rule (`equivalent`), with the reason.
"""

from __future__ import annotations

from collections.abc import Iterator

from tests.obligations import faults_in_figures, faults_in_order
from tests.obligations.asking import Mutator
from tests.obligations.scripts import Golden, Mutant, Script

MUTATORS: tuple[Mutator, ...] = (
    faults_in_figures.reduce_left_out,
    faults_in_figures.reduce_of_one_left_out,
    faults_in_figures.gather_left_out,
    faults_in_figures.gather_of_one_left_out,
    faults_in_figures.sum_and_mean_swapped,
    faults_in_figures.reduced_twice,
    faults_in_figures.gathered_twice,
    faults_in_figures.reduced_in_each_round,
    faults_in_figures.divided_by_another_count,
    faults_in_figures.weight_left_out,
    faults_in_figures.reset_left_out,
    faults_in_figures.factor_left_out,
    faults_in_figures.backward_reduction_swapped,
    faults_in_figures.plain_backward,
    faults_in_figures.accumulate_left_out,
    faults_in_figures.shard_left_out,
    faults_in_order.print_by_all,
    faults_in_order.save_by_all,
    faults_in_order.guard_left_out,
    faults_in_order.guard_turned_round,
    faults_in_order.unwrap_left_out,
    faults_in_order.wait_left_out,
    faults_in_order.meeting_under_guard,
    faults_in_order.step_under_guard,
    faults_in_order.call_under_guard,
    faults_in_order.meeting_by_a_batch,
    faults_in_order.left_early,
    faults_in_order.prepare_left_out,
    faults_in_order.schedule_made_after_prepare,
    faults_in_order.seed_by_rank,
)


def mutants_of(golden: Golden) -> Iterator[Mutant]:
    """All mutants of all files of a golden."""
    for file in golden.files:
        script = Script(golden, file)
        for mutator in MUTATORS:
            yield from (mutant for mutant in mutator(script) if mutant is not None)
