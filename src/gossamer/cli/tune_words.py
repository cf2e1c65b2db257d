"""The result of `gossamer tune` in words."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

from gossamer.results.statistics import Interval
from gossamer.study.space import Candidate, symbol
from gossamer.study.tune import Goal, Lead, Rung, SearchStart, Tuned
from gossamer.tasks import Validation


def why(tuned: Tuned) -> str:
    """Explain a result in one paragraph: how sure the lead is, what was tried and confirmed.

    Args:
        tuned: The result of a search.
    """
    return f"{verdict(tuned)} {method_of_search(tuned)}"


def verdict(tuned: Tuned) -> str:
    """Say which method won, and how sure its lead is.

    Args:
        tuned: The result of a search.
    """
    winner = tuned.winner
    other = tuned.best_other
    sentences = [_result(tuned)]
    if winner is tuned.baseline and tuned.others[0]:
        sentences.append(_nothing_better(tuned))
    elif winner.candidate != tuned.chosen:
        sentences.append(
            f"{tuned.chosen.label} led on the tuning seeds; the fresh ones contradict, so that "
            "part of the lead may be luck."
        )
    if winner is not tuned.confirmed[0]:
        sentences.append(
            f"{other.candidate.label} was ahead on the fresh seeds, but not surely; the winner is "
            "chosen on the tuning seeds."
        )
    sentences.append(_comparison("the best other one,", tuned.lead_over(other), tuned))
    if tuned.baseline is not winner and tuned.baseline is not other:
        sentences.append(_comparison("tuned", tuned.lead_over(tuned.baseline), tuned))
    sentences += _at_edges(tuned)
    return " ".join(sentences)


def method_of_search(tuned: Tuned) -> str:
    """Say what was tried and confirmed, on which seeds and samples.

    Args:
        tuned: The result of a search.
    """
    sentences = [_search(tuned), _confirmation(tuned)]
    if tuned.study.with_seed(tuned.study.seed + 1).network == tuned.study.network:
        sentences.append(
            "The links are the same in every run: "
            "only split, batches and start differ between seeds."
        )
    if tuned.fit.left_out:
        left_out = count_of(len(tuned.fit.left_out), "method")
        sentences.append(f"{left_out} left out as not fitting: result.json says why.")
    return " ".join(sentences)


def start_lines(start: SearchStart) -> list[str]:
    """Say what will be searched, and how long it will take.

    Args:
        start: What is known before the first run.
    """
    fit = start.fit
    lines = [f"{count_of(len(fit.methods), 'method')}: {', '.join(fit.methods)}"]
    if fit.left_out:
        lines.append(f"left out: {_left_out(fit.left_out)}")
    first = start.plan.rungs[0]
    lines.append(
        f"{first.baseline} rates of {fit.baseline.label}, {first.others} settings of others; "
        f"up to {start.plan.runs} runs, most of them short; "
        f"about {_duration(start.seconds)} of processor time"
    )
    return lines


def marked_settings(candidate: Candidate, tuned: Tuned) -> str:
    """Return the settings of a candidate, with a mark where they are at the edge of their range.

    Args:
        candidate: One of the confirmed candidates.
        tuned: The result of a search.
    """
    edges = tuned.edges(candidate)
    words = []
    for key, value in candidate.settings:
        text = f"{symbol(key)} {value}"
        if key in edges:
            text += " (edge)"
        words.append(text)
    return ", ".join(words)


def _left_out(reasons: dict[str, str]) -> str:
    """Return the methods that were left out, those with the same reason together."""
    names: dict[str, list[str]] = {}
    for name, reason in reasons.items():
        names.setdefault(reason, []).append(name)
    return "; ".join(f"{', '.join(group)} ({reason})" for reason, group in names.items())


def _duration(seconds: float) -> str:
    """Return a duration in words, with one or two digits."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    if seconds < 90 * 60:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


def _nothing_better(tuned: Tuned) -> str:
    """Say that the baseline was not beaten, and by what it was on the tuning seeds if it was."""
    label = tuned.fit.baseline.label
    if tuned.winner.candidate == tuned.chosen:
        return f"Nothing that was tried beat {label}."
    return f"{tuned.chosen.label} led on the tuning seeds; the fresh ones do not confirm it."


def _at_edges(tuned: Tuned) -> list[str]:
    """Name the settings of the winner and of the baseline at the edge of their range."""
    sentences = []
    for score in (tuned.winner, tuned.baseline):
        for key in tuned.edges(score.candidate):
            sentence = (
                f"The {symbol(key)} of {score.candidate.label} is at the edge of its range: "
                "a better one may lie beyond."
            )
            if sentence not in sentences:
                sentences.append(sentence)
    return sentences


def percent(share: float) -> str:
    """Return a share as a percentage.

    Args:
        share: A number from 0 to 1.

    Example:
        >>> percent(0.885)
        '88.5 %'
    """
    return f"{share * 100:g} %"


def count_of(count: int, noun: str) -> str:
    """Return a number with its noun.

    Args:
        count: The number.
        noun: The noun in the singular.

    Example:
        >>> count_of(1, "method"), count_of(2, "method")
        ('1 method', '2 methods')
    """
    if count == 1:
        return f"1 {noun}"
    return f"{count} {noun}s"


def target_of(tuned: Tuned) -> str:
    """Return the target of a search in words, such as "90 %" or "mae 40"; empty without one.

    Args:
        tuned: The result of a search.
    """
    if tuned.target is None:
        return ""
    metric = tuned.goal.metric
    value = f"{tuned.target.value * metric.scale:g} {metric.printed_unit}".strip()
    if not metric.share:
        value = f"{metric.name} {value}"
    if tuned.goal.ending:
        value += f" ({tuned.goal.ending.strip('_')})"
    return value


def seeds_of(rung: Rung) -> str:
    """Return the seeds of a stage in words.

    Args:
        rung: A stage of a search.
    """
    first = rung.seeds[0]
    last = rung.seeds[-1]
    if first == last:
        return f"seed {first}"
    return f"seeds {first} to {last}"


def _search(tuned: Tuned) -> str:
    """Say what was run in the search, and on which samples it was measured."""
    rates = [len(scores) for scores in tuned.baselines]
    counts = [len(scores) for scores in tuned.others]
    text = (
        f"{rates[0]} rates of {tuned.fit.baseline.label} were run to full length, "
        f"then {rates[1]} and {rates[2]} of the best or beside them on more seeds"
    )
    if counts[0]:
        first, second, third = tuned.plan.rungs
        methods = len({score.candidate.method.name for score in tuned.others[0]})
        text = (
            f"{counts[0]} settings of {count_of(methods, 'method')} were tried for "
            f"{first.rounds} rounds on {seeds_of(first)}, then {counts[1]} of the best or beside "
            f"them for {second.rounds} rounds on {seeds_of(second)}, and {counts[2]} for the full "
            f"{third.rounds} on {seeds_of(third)}. {text}"
        )
    if tuned.tuning is tuned.study:
        return (
            f"{text}. No validation samples can be held out of these data: "
            "the search looked at the test samples too."
        )
    share = percent(cast(Validation, tuned.tuning.data).share)
    return (
        f"{text}. All this was measured on {share} of the training samples, "
        "held out for the search."
    )


def _confirmation(tuned: Tuned) -> str:
    """Say what was confirmed, and on what."""
    among = ""
    if tuned.others[0]:
        among = f", the best {tuned.fit.baseline.label} among them,"
    samples = " and the true test samples"
    if tuned.tuning is tuned.study:
        samples = ""
    return (
        f"The best {len(tuned.confirmed)}{among} were confirmed on "
        f"fresh {seeds_of(tuned.plan.final)}{samples}, which had no part in the search."
    )


def _result(tuned: Tuned) -> str:
    """Say what the winner achieved."""
    label = tuned.winner.candidate.label
    if tuned.winner.diverged:
        return f"Even the best, {label}, diverged on some of the seeds."
    goal = tuned.goal
    at_end = f"{goal.words} of {_value(tuned.winner.mean_last(goal.column), goal)} at the end"
    if goal.cost is None:
        return f"{label} wins with {at_end}."
    if tuned.target is None:
        return f"None of the targets was reached; {label} wins with {at_end}."
    mean = tuned.winner.mean_to_target(goal.cost, tuned.target)
    if mean is not None:
        return f"{label} reached {target_of(tuned)} after {_amount(mean, goal.cost)}."
    taken = tuned.winner.to_target(goal.cost, tuned.target)
    reached = len(taken) - taken.count(None)
    return (
        f"{label} wins with {at_end}; it reached {target_of(tuned)} on {reached} of {len(taken)} "
        "seeds."
    )


def _comparison(which: str, lead: Lead, tuned: Tuned) -> str:
    """Say how far the winner is ahead of another, and whether that is sure."""
    other = f"{which} {lead.of.candidate.label}"
    seeds = len(lead.of.curves)
    if lead.of.diverged:
        return f"Against {other}: that one diverged on {lead.of.diverged} of {seeds} seeds."
    ahead = lead.ahead
    is_better = ahead.mean >= 0
    if not is_better:
        ahead = replace(ahead, mean=-ahead.mean)
    if lead.unit == "metric":
        word = "worse"
        if is_better:
            word = "better"
        text = f"{tuned.goal.words} {word} by {_value(ahead, tuned.goal)} at the end"
    else:
        word = "more"
        if is_better and lead.unit == "rounds":
            word = "fewer"
        elif is_better:
            word = "less"
        text = f"{_amount(ahead, lead.unit)} {word} ({percent(round(abs(lead.share), 2))})"
    if lead.missed:
        text += (
            f", and on {lead.missed} of {seeds} seeds that one does not reach "
            f"{target_of(tuned)} at all"
        )
    verdict = "not sure: the two may well be equal"
    if lead.sure or (ahead.half is not None and ahead.mean > ahead.half):
        verdict = "sure at 95 %"
    return f"Against {other}, seed by seed: {text}; {verdict}."


def _value(value: Interval | None, goal: Goal) -> str:
    """Return a value of the metric with its interval and unit."""
    if value is None:
        return "–"
    unit = goal.metric.printed_unit
    if goal.metric.share:
        return f"{value.format(1, 100)} {unit}"
    return f"{goal.metric.text(value.mean, value.half)} {unit}".strip()


def _amount(value: Interval, unit: str) -> str:
    """Return a mean with its interval and unit."""
    if unit == "bytes":
        return f"{value.format(2, 1e-6)} MB"
    if unit == "rounds":
        return f"{value.format(0)} rounds"
    return f"{value.format(1)} {unit}"
