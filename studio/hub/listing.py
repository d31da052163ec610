"""What a repository holds: the files that a checkpoint needs, where they are, how long and with which hash.

Two hubs, one listing; nothing here downloads a file's content.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote, urlencode

from studio.checkpoint import wanted_files
from studio.errors import HubError
from studio.settings import Settings

HubName = Literal["huggingface", "modelscope"]
ENDPOINTS = {"huggingface": "https://huggingface.co", "modelscope": "https://modelscope.cn"}
REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", re.ASCII)


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """One file of a repository. Exactly one of the hashes is known: sha256, or git's own of small files.

    revision: what its address names; the commit, where the hub tells it.
    """

    path: str
    size: int
    revision: str
    sha256: str = ""
    git_sha1: str = ""

    @property
    def hash(self) -> str:
        return self.sha256 or self.git_sha1

    def hash_of(self, content: Path) -> str:
        """The hash of a file on disk, of the kind that the hub gave."""
        blob = hashlib.sha1(b"blob %d\0" % self.size, usedforsecurity=False)
        with content.open("rb") as opened:
            return hashlib.file_digest(opened, lambda: hashlib.sha256() if self.sha256 else blob).hexdigest()


@dataclass(frozen=True, slots=True)
class Repository:
    """Where a checkpoint is fetched from. revision: a branch, tag or commit; "" is the hub's main branch."""

    id: str
    hub: HubName = "huggingface"
    revision: str = ""
    endpoint: str = ""

    @classmethod
    def of(cls, settings: Settings) -> Repository | None:
        """What model_dir names, unless it is a folder here."""
        return cls.named(settings.model_dir, settings, settings.model_revision)

    @classmethod
    def named(cls, name: str, settings: Settings, revision: str = "") -> Repository | None:
        """What a name stands for on the hub of the settings, unless it is a folder here."""
        if Path(name).is_dir() or not REPOSITORY.fullmatch(name):
            return None
        return cls(name, settings.hub, revision, settings.hub_endpoint)

    @property
    def base(self) -> str:
        """The hub's address, without a slash at its end."""
        return (self.endpoint or ENDPOINTS[self.hub]).rstrip("/")

    @property
    def folder_name(self) -> str:
        """One folder for each repository and revision."""
        name = f"{self.hub}--{self.id.replace('/', '--')}"
        return name + (f"--{re.sub(r'[^A-Za-z0-9.-]', '_', self.revision)}" if self.revision else "")

    @property
    def listing_url(self) -> str:
        if self.hub == "modelscope":
            query = urlencode({"Revision": self.revision or "master", "Recursive": "true"})
            return f"{self.base}/api/v1/models/{self.id}/repo/files?{query}"
        return f"{self.base}/api/models/{self.id}/revision/{quote(self.revision or 'main', safe='')}?blobs=true"

    def url_of(self, file: RemoteFile) -> str:
        """Where a file is at the endpoint of today, which may be another than when it was listed."""
        if self.hub == "modelscope":
            query = urlencode({"Revision": file.revision, "FilePath": file.path})
            return f"{self.base}/api/v1/models/{self.id}/repo?{query}"
        return f"{self.base}/{self.id}/resolve/{quote(file.revision, safe='')}/{quote(file.path)}"

    def read_listing(self, found: Any) -> tuple[RemoteFile, ...]:
        """The files that a checkpoint needs, of what the hub answered to listing_url.

        Raises: HubError if it is no listing, or not that of a checkpoint.
        """
        try:
            files = self._modelscope(found) if self.hub == "modelscope" else self._huggingface(found)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise HubError("hub.no_listing", repository=self.id, host=self.base) from error
        wanted, missing = wanted_files(files)
        if missing:
            raise HubError("hub.no_checkpoint", repository=self.id, file=missing)
        return tuple(files[path] for path in wanted)

    def _huggingface(self, found: Mapping[str, Any]) -> dict[str, RemoteFile]:
        """Every file names the commit, so that a push in the middle of a download changes nothing."""
        commit, files = str(found["sha"]), {}
        for entry in found["siblings"]:
            path, large = str(entry["rfilename"]), entry.get("lfs")
            if large:
                files[path] = RemoteFile(path, int(large["size"]), commit, sha256=str(large["sha256"]).lower())
            else:
                files[path] = RemoteFile(path, int(entry["size"]), commit, git_sha1=str(entry["blobId"]).lower())
        return files

    def _modelscope(self, found: Mapping[str, Any]) -> dict[str, RemoteFile]:
        files = {}
        for entry in found["Data"]["Files"]:
            if entry.get("Type") == "tree":
                continue
            path = str(entry["Path"])
            revision = self.revision or "master"
            files[path] = RemoteFile(path, int(entry["Size"]), revision, sha256=str(entry["Sha256"]).lower())
        return files
