import importlib.util
from pathlib import Path
from types import SimpleNamespace

import pytest

import covshift.extras
from covshift.cli.main import main
from covshift.extras import EXTRAS, MissingExtraError, ray_session, require

ROOT = Path(__file__).parent.parent


@pytest.fixture
def absent(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Modules that are not installed, as far as `require` can see."""
    modules: set[str] = set()
    find = importlib.util.find_spec
    monkeypatch.setattr(
        covshift.extras, "find_spec", lambda name: None if name in modules else find(name)
    )
    return modules


def test_every_extra_is_declared() -> None:
    declared = (ROOT / "pyproject.toml").read_text().split("[project.optional-dependencies]")[1]
    for name in EXTRAS:
        assert f"\n{name} = [" in declared


def test_missing_extras_are_named_together(absent: set[str]) -> None:
    require("games", "torch", "sb3")
    absent.add("stable_baselines3")
    with pytest.raises(MissingExtraError, match=r"pip install 'covshift\[sb3\]'"):
        require("torch", "sb3")
    absent.add("torch")
    with pytest.raises(MissingExtraError, match=r"covshift\[torch,sb3\]"):
        require("torch", "sb3")


@pytest.mark.parametrize(
    ("command", "module", "extra"),
    [
        ("train CartPole-v1 --out OUT", "torch", "torch"),
        ("train MinAtar/Breakout-v1 --out OUT", "minatar", "games"),
        ("train CartPole-v1 --log tensorboard --out OUT", "tensorboard", "tensorboard"),
        ("collect ALE/Pong-v5 --transitions 9 --out OUT", "ale_py", "games"),
        ("reproduce figure-2 --out OUT", "minatar", "games"),
        ("reproduce figure-2 --out OUT", "torch", "torch"),
        ("reproduce figure-2 --engine ray --out OUT", "ray", "ray"),
        ("demo --out OUT", "torch", "torch"),
        ("evaluate OUT", "torch", "torch"),
        ("estimate ratio OUT --policy uniform --method neural --out OUT", "torch", "torch"),
    ],
)
def test_commands_notice_a_missing_extra_before_they_load_anything(
    command: str,
    module: str,
    extra: str,
    absent: set[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    absent.add(module)
    loaded: list[str] = []
    importer = SimpleNamespace(import_module=loaded.append)
    monkeypatch.setattr("covshift.cli.main.importlib", importer)
    with pytest.raises(SystemExit, match="2"):
        main(command.replace("OUT", str(tmp_path / "out")).split())
    assert f"pip install 'covshift[{extra}]'" in capsys.readouterr().err
    assert not loaded
    assert not (tmp_path / "out").exists()


def test_the_theory_and_tables_need_no_extra(absent: set[str]) -> None:
    from covshift.experiments.experiment import named_experiment

    absent.update({"torch", "minatar", "ale_py"})
    require(*named_experiment("theory").extras("small"))


def test_ray_starts_here_also_beside_another_cluster() -> None:
    """Ray by itself would join a cluster that someone else runs on this machine."""
    pytest.importorskip("ray")
    cluster_utils = pytest.importorskip("ray.cluster_utils")
    options = {"num_cpus": 1, "include_dashboard": False}
    cluster = cluster_utils.Cluster(initialize_head=True, head_node_args=options)
    try:
        for address in (None, cluster.address):
            with ray_session(address) as ray:
                joined = ray.get_runtime_context().gcs_address
                assert (joined == cluster.address) == (address is not None)
            assert not ray.is_initialized()
    finally:
        cluster.shutdown()
