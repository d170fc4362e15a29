"""A real Chroma server on the loopback interface, which a test can stop, kill and start again."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import httpx

from network import free_port
from palimpsest.core.settings import Settings, load_settings

START_SECONDS = 60.0


class ChromaProcess:
    """A Chroma server with its data in a folder. It keeps its port when it is started again."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the server and wait until it answers."""
        command = shutil.which("chroma", path=str(Path(sys.executable).parent))
        assert command is not None, "chromadb installs its command next to the interpreter"
        self.folder.mkdir(parents=True, exist_ok=True)
        started = [command, "run", "--path", str(self.folder), "--host", "127.0.0.1", "--port", str(self.port)]
        self._process = subprocess.Popen(started, cwd=self.folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            assert self._process.poll() is None, "the Chroma server ended while starting"
            try:
                if httpx.get(f"http://127.0.0.1:{self.port}/api/v2/heartbeat", trust_env=False).is_success:
                    return
            except httpx.TransportError:
                time.sleep(0.05)
        raise AssertionError("the Chroma server did not start in time")

    def kill(self) -> None:
        """End the server as a crash would (SIGKILL)."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def restart(self) -> None:
        """Kill the server and start it again, with its data."""
        self.kill()
        self.start()

    def freeze(self) -> None:
        """Stop the process (SIGSTOP): it accepts connections and never answers."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let a frozen process go on."""
        self._signal(signal.SIGCONT)

    def forget(self) -> None:
        """Kill the server and start it again without its data."""
        self.kill()
        shutil.rmtree(self.folder)
        self.start()

    def settings(self, data_dir: Path, **config: Any) -> Settings:
        """Return settings with this server."""
        return load_settings(None, data_dir=data_dir, user_id="alice", vector_store=self.vector_store(**config))

    def vector_store(self, **config: Any) -> dict[str, Any]:
        """Return the section of the settings that names this server."""
        return {"config": {"host": "127.0.0.1", "port": self.port, **config}}

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None, "the server does not run"
        os.kill(self._process.pid, number)
