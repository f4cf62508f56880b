"""`covshift data info | verify | import | export`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro


@dataclass(frozen=True)
class Info:
    """Say what a dataset holds, and draw a contact sheet of its frames."""

    folder: Annotated[Path, tyro.conf.Positional]
    """The dataset."""

    sheet: Path | None = None
    """Where the contact sheet goes; by default <folder>-frames.png beside the folder."""

    def run(self) -> None:
        """Prints the summary."""
        from covshift.data.summary import contact_sheet, has_frames, summarize

        for word, text in summarize(self.folder).items():
            print(f"{word:15} {text}")
        if has_frames(self.folder):
            place = self.sheet or self.folder.resolve().with_name(
                f"{self.folder.resolve().name}-frames.png"
            )
            print(f"{'frames':15} {contact_sheet(self.folder, place)}")


@dataclass(frozen=True)
class Verify:
    """Check every checksum and every invariant of a dataset."""

    folder: Annotated[Path, tyro.conf.Positional]
    """The dataset."""

    def run(self) -> None:
        """Prints what was found right, and ends with status 2 at what is not."""
        from covshift.data.verification import verify

        for line in verify(self.folder):
            print(line)
        print(f"{self.folder} is right")


@dataclass(frozen=True)
class Import:
    """Make a dataset from NumPy arrays or from a local Minari dataset."""

    source: Annotated[str, tyro.conf.Positional]
    """A file.npz with observations, actions, rewards, terminated, truncated and perhaps mu (T + 1 rows an episode), or the name of a Minari dataset."""

    out: Path
    """Folder of the new dataset."""

    policy: str | None = None
    """Gives μ(a|s) where the source has none: uniform | file:P.npy | module:function."""

    num_actions: int | None = None
    """Actions of the environment, for .npz files; by default one more than the largest in the data."""

    def run(self) -> None:
        """Imports, and says where the dataset is."""
        from covshift.data.exchange import import_minari, import_npz

        if self.source.endswith(".npz"):
            place = import_npz(Path(self.source), self.out, self.policy, self.num_actions)
        else:
            place = import_minari(self.source, self.out, self.policy)
        print(f"The dataset: {place}")


@dataclass(frozen=True)
class Export:
    """Write a dataset as a local Minari dataset (HDF5), μ in its infos."""

    folder: Annotated[Path, tyro.conf.Positional]
    """The dataset."""

    name: str
    """Name of the Minari dataset, such as mine/pong-random-v0."""

    def run(self) -> None:
        """Exports."""
        from covshift.data.exchange import export_minari

        print(f"The Minari dataset: {export_minari(self.folder, self.name)}")


@dataclass(frozen=True)
class Data:
    """Look at a dataset, verify it, import one, or export it."""

    action: tyro.conf.OmitSubcommandPrefixes[
        Annotated[Info, tyro.conf.subcommand("info")]
        | Annotated[Verify, tyro.conf.subcommand("verify")]
        | Annotated[Import, tyro.conf.subcommand("import")]
        | Annotated[Export, tyro.conf.subcommand("export")]
    ]

    def run(self) -> None:
        """Does what was asked."""
        self.action.run()
