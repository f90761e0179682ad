"""What was done to a model, and why: for people, notebooks and programs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ._optimize import OptimizedModel


def parsed(text: str) -> dict[str, Any]:
    """What a text of JSON says."""
    import json

    data: dict[str, Any] = json.loads(text)
    return data


def _json(data: dict[str, Any], default: Any = None) -> str:
    import json

    return json.dumps(data, default=default)


def escape(text: str) -> str:
    """A text as HTML."""
    import html

    return html.escape(text)


def _size(n: float) -> str:
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if n < 1024 or unit == "GiB":
            return f"{n:.0f} {unit}" if unit == "bytes" else f"{n:.1f} {unit}"
        n /= 1024
    raise AssertionError("the last unit takes any size")


def _time(seconds: float) -> str:
    for scale, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if seconds >= scale:
            return f"{seconds / scale:.2f} {unit}"
    return f"{seconds * 1e9:.0f} ns"


def _html(rows: list[tuple[str, str]], caption: str) -> str:
    cells = "".join(
        f'<tr><th style="text-align:left">{escape(name)}</th><td style="text-align:left">{escape(text)}</td></tr>' for name, text in rows
    )
    return f'<table><caption style="text-align:left">{escape(caption)}</caption>{cells}</table>'


def preformatted(text: str) -> str:
    """A text whose columns are aligned, as HTML: notebooks break lines within words otherwise, and a long text fills the page."""
    style = "font-family: monospace; white-space: pre; word-break: normal; overflow: auto; max-height: 32em"
    return f'<pre style="{style}">{escape(text)}</pre>'


class Report:
    """What happened to a model: figures before and after, the laws that did it, the self-check, and the time that it took.

    ``print(report)`` is what the command line prints; a notebook shows a table.
    """

    __slots__ = ("_data", "optimized")

    def __init__(self, optimized: OptimizedModel, data: dict[str, Any]) -> None:
        self.optimized = optimized
        """The result, to be run, saved and asked why."""
        self._data = data

    @property
    def target(self) -> str:
        """What the result is for."""
        return str(self._data["target"])

    @property
    def nodes_before(self) -> int:
        """Nodes of the model as read."""
        return int(self._data["nodes_before"])

    @property
    def nodes_after(self) -> int:
        """Nodes of the result."""
        return int(self._data["nodes_after"])

    @property
    def cost_before(self) -> float:
        """Estimated seconds of a run of the model as read."""
        return float(self._data["cost_before"])

    @property
    def cost_after(self) -> float:
        """Estimated seconds of a run of the result."""
        return float(self._data["cost_after"])

    @property
    def laws(self) -> dict[str, int]:
        """The laws that the result rests on, with the number of their equations in its proof."""
        return dict(self._data["proof"])

    @property
    def self_check_error(self) -> float | None:
        """Largest difference that the self-check found, as a part of an output's largest element; `None` if it did not run."""
        error = self._data["self_check_error"]
        return None if error is None else float(error)

    @property
    def laws_turned_off(self) -> list[str]:
        """Laws that were turned off, as the self-check found the result to be wrong with them."""
        return [off["law"] for off in self._data["laws_turned_off"]]

    @property
    def is_as_read(self) -> bool:
        """True if nothing better was found than the model as it was read."""
        return bool(self._data["as_read"])

    @property
    def seconds(self) -> dict[str, float]:
        """Seconds of each stage, in order."""
        return dict(self._data["seconds"])

    @property
    def notes(self) -> list[str]:
        """What the user should know besides."""
        return list(self._data["notes"])

    def to_dict(self) -> dict[str, Any]:
        """All figures, by the names that `to_json` has."""
        return dict(self._data)

    def to_json(self) -> str:
        """All figures as JSON."""
        return _json(self._data)

    def explain(self) -> Explanation:
        """What became of the model's nodes, by which laws, and what that gains. See `OptimizedModel.explain`."""
        return self.optimized.explain()

    def html(self) -> str:
        """The explanation as one page for a browser. See `OptimizedModel.html`."""
        return self.optimized.html()

    def why_not(self, name: str) -> WhyNot:
        """Why a law did not fire, or why the result is without an operator. See `OptimizedModel.why_not`."""
        return self.optimized.why_not(name)

    def _rows(self) -> list[tuple[str, str]]:
        d = self._data
        rows = [("nodes", f"{self.nodes_before} → {self.nodes_after}")]
        rows.append(("cost", f"{_time(self.cost_before)} → {_time(self.cost_after)}, estimated for {self.target}"))
        rows.append(("weights", f"{_size(d['weights_bytes_before'])} → {_size(d['weights_bytes'])}"))
        if d["peak_bytes_before"] is not None and d["peak_bytes"] is not None:
            rows.append(("peak memory", f"{_size(d['peak_bytes_before'])} → {_size(d['peak_bytes'])}"))
        error = self.self_check_error
        rows.append(("self-check", "not done" if error is None else f"largest relative error {error:.1e}"))
        if self.laws_turned_off:
            rows.append(("laws turned off", ", ".join(self.laws_turned_off)))
        rows.append(("laws", ", ".join(f"{law} × {n}" for law, n in sorted(self.laws.items(), key=lambda x: (-x[1], x[0]))) or "none"))
        rows.append(("time", f"{sum(self.seconds.values()):.2f} s"))
        rows.extend(("note", note) for note in self.notes)
        return rows

    def __str__(self) -> str:
        rows = self._rows()
        width = max(len(name) for name, _ in rows)
        return "\n".join(f"{name:<{width}}  {text}" for name, text in rows)

    def __repr__(self) -> str:
        return f"<mlc_rewrite.Report {self.nodes_before} -> {self.nodes_after} nodes for {self.target}>"

    def _repr_html_(self) -> str:
        return _html(self._rows(), "What was optimised")


class _Told:
    """An answer: text for people, data for programs."""

    __slots__ = ("_data", "text")

    def __init__(self, told: tuple[str, str]) -> None:
        self._data = parsed(told[0])
        self.text = told[1]
        """The answer for people."""

    def to_dict(self) -> dict[str, Any]:
        """The answer for programs."""
        return dict(self._data)

    def to_json(self) -> str:
        """The same as JSON."""
        return _json(self._data)

    def __str__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        return preformatted(self.text)


class Explanation(_Told):
    """What became of the nodes of a model, which laws did it, and what each gains. ``print`` it, or look at its parts."""

    __slots__ = ()

    @property
    def laws(self) -> list[dict[str, Any]]:
        """The laws without which the result cannot be proved: ``law``, ``doc``, ``error``, ``equations``, ``nodes``, …"""
        return list(self._data["laws"])

    @property
    def regions(self) -> list[dict[str, Any]]:
        """Kernels before and after, by the nodes of the model that they compute; what they save adds up to the whole."""
        return list(self._data["regions"])

    def __repr__(self) -> str:
        return f"<mlc_rewrite.Explanation of {len(self.regions)} regions, {len(self.laws)} laws>"


class WhyNot(_Told):
    """Why a law did not fire, or why the result is without an operator: how far each match came, and what it lacked."""

    __slots__ = ()

    @property
    def name(self) -> str:
        """What was asked for."""
        return str(self._data["name"])

    def __repr__(self) -> str:
        return f"<mlc_rewrite.WhyNot {self.name}>"


class Answer(_Told):
    """The answer to a question about a result. ``print`` it, or look at ``to_dict()``."""

    __slots__ = ()
