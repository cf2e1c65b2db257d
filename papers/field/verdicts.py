"""Print every claim of advice.toml with its lead in every cell, then what is wrong.

python -m papers.field.verdicts
"""

from __future__ import annotations

from papers.field.advice import RESULTS, claim_text, judge, lead_text, problems, read
from papers.field.compare import cell_name, load


def main() -> None:
    """Print the claims and the problems."""
    advice = read()
    measured = load(RESULTS)
    for row in advice:
        print(row.situation)
        for claim in row.claims:
            verdicts = judge(claim, measured)
            print(f"  {claim_text(claim, verdicts)}")
            for verdict in verdicts:
                answer = "holds" if verdict.holds else "fails"
                print(f"    {answer}  {cell_name(verdict.cell)}: {lead_text(verdict)}")
    for problem in problems(advice, measured):
        print(problem)


if __name__ == "__main__":
    main()
