"""`covshift data info | verify | import | export`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from covshift.cli.arguments import optional
from covshift.errors import InputError


@dataclass(frozen=True)
class Info:
    """Summarize a dataset, and draw a contact sheet of its frames."""

    folder: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="DATASET")]
    """Folder of the dataset."""

    sheet: Annotated[Path | None, optional("PATH")] = None
    """File of the contact sheet; by default <folder>-frames.png beside the folder."""

    def run(self) -> None:
        """Prints the summary."""
        from covshift.data import open_dataset
        from covshift.data.summary import contact_sheet, has_frames, summarize

        dataset = open_dataset(self.folder)
        if self.sheet is not None and not has_frames(dataset):
            raise InputError(f"{self.folder} holds no frames to draw; leave --sheet out")
        for word, text in summarize(dataset).items():
            print(f"{word:15} {text}")
        if has_frames(dataset):
            folder = self.folder.resolve()
            path = self.sheet or folder.with_name(f"{folder.name}-frames.png")
            print(f"{'frames':15} {contact_sheet(dataset, path)}")


@dataclass(frozen=True)
class Verify:
    """Check that the files of a dataset are complete and undamaged: every checksum, episode and observation. Says OK, or what is wrong."""

    folder: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="DATASET")]
    """Folder of the dataset."""

    def run(self) -> None:
        """Prints each check that passed; the first that fails ends the command with status 2."""
        from covshift.data.verification import verify

        for line in verify(self.folder):
            print(line)
        print(f"{self.folder}: OK")


@dataclass(frozen=True)
class Import:
    """Make a dataset from NumPy arrays or from a local Minari dataset."""

    source: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="SOURCE")]
    """An .npz file with observations, actions, rewards, terminated, truncated and optionally mu (T + 1 rows per episode of T steps), or the name of a Minari dataset."""

    out: Path
    """Folder of the new dataset."""

    policy: Annotated[str | None, optional("POLICY")] = None
    """Behavior policy, which gives μ(a|s) if the source has none: uniform | file:P.npy | run:DIR,epsilon=E | module:function."""

    num_actions: Annotated[int | None, optional("INT")] = None
    """Number of actions, for .npz files; by default one more than the largest action in the data."""

    def run(self) -> None:
        """Imports, and prints where the dataset is."""
        from covshift.data.import_export import import_minari, import_npz

        if self.source.endswith(".npz"):
            import_npz(Path(self.source), self.out, self.policy, self.num_actions)
        else:
            import_minari(self.source, self.out, self.policy)
        print(f"The dataset: {self.out}")


@dataclass(frozen=True)
class Export:
    """Write a dataset as a local Minari dataset (HDF5), with μ in its infos."""

    folder: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="DATASET")]
    """Folder of the dataset."""

    name: str
    """Name of the Minari dataset, such as mine/pong-random-v0."""

    def run(self) -> None:
        """Exports, and prints the name of the Minari dataset."""
        from covshift.data.import_export import export_minari

        print(f"The Minari dataset: {export_minari(self.folder, self.name)}")


@dataclass(frozen=True)
class Data:
    """Summarize, verify, import or export a dataset."""

    action: tyro.conf.OmitSubcommandPrefixes[
        Annotated[Info, tyro.conf.subcommand("info")]
        | Annotated[Verify, tyro.conf.subcommand("verify")]
        | Annotated[Import, tyro.conf.subcommand("import")]
        | Annotated[Export, tyro.conf.subcommand("export")]
    ]

    def run(self) -> None:
        """Runs the subcommand."""
        self.action.run()
