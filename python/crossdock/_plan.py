"""Plans of exports."""

import html

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ._native import _ColumnPlan

    _Base = list[_ColumnPlan]
else:
    _Base = list


class Plan(_Base):
    """What an export does with each column: a list of dicts with name, verdict, device and reason.

    >>> table.plan("dlpack")[0]["verdict"]
    'zero-copy'
    """

    def _repr_html_(self) -> str:
        """HTML for notebooks."""
        rows = [("name", "verdict", "device", "reason")]
        rows += ((plan["name"], plan["verdict"], plan["device"], plan["reason"]) for plan in self)
        lines = []
        for i, row in enumerate(rows):
            tag = "td" if i else "th"
            cells = (f'<{tag} style="text-align: left">{html.escape(str(cell))}</{tag}>' for cell in row)
            lines.append(f"<tr>{''.join(cells)}</tr>\n")
        return f"<div><p>crossdock.Plan: {len(self)} columns</p>\n<table>\n{''.join(lines)}</table>\n</div>"
