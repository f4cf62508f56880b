"""The study of the exact theory: every claim of the paper, its errata, and the results past it."""

from covshift.experiments.experiment import Study

PROBLEMS = {"paper": 3_000, "small": 3_000, "smoke": 20}
"""Random problems that each of the survey's two generators draws."""

EXPERIMENT = Study(
    name="theory",
    title="The exact theory",
    claim="Every theorem of the paper, in its corrected form, every erratum and every result past the paper holds.",
    costs={
        "paper": "no runs, about 2 min on one core",
        "small": "no runs, about 2 min on one core",
        "smoke": "no runs, about 1 min on one core",
    },
    function="covshift.experiments.theory.study:run",
)
