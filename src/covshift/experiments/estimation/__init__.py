"""The study of estimators: their error, the coverage of their intervals, and their time."""

from covshift.experiments.experiment import Study

EXPERIMENT = Study(
    name="estimation",
    title="Estimators of ratios and values",
    claim="Every estimator of ratios and values: error, coverage and time on five domains, for growing data and distance.",
    costs={
        "small": "no runs, about 12 min on one core",
        "smoke": "no runs, about 1 min on one core",
    },
    function="covshift.experiments.estimation.study:run",
    needs=("games", "torch"),
)
