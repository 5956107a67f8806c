"use strict";
// Sorts a table by the column whose button is pressed; a second press turns the order round. Unknown values stay last.
const order = new Intl.Collator("en", { numeric: true });
for (const table of document.querySelectorAll("table")) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    const button = head.querySelector("button");
    button.addEventListener("click", () => {
      const up = head.getAttribute("aria-sort") !== "ascending";
      const key = (row) => row.cells[column].dataset.value;
      const text = head.classList.contains("text");
      const compare = (a, b) => {
        if (key(a) === "" || key(b) === "") return (key(a) === "") - (key(b) === "");
        const less = text ? order.compare(key(a), key(b)) : key(a) - key(b);
        return up ? less : -less;
      };
      const body = table.tBodies[0];
      body.append(...[...body.rows].sort(compare));
      for (const other of heads) other.setAttribute("aria-sort", "none");
      head.setAttribute("aria-sort", up ? "ascending" : "descending");
      const said = `${button.textContent}: ${up ? "ascending" : "descending"}`;
      document.getElementById("sorted").textContent = `Sorted by ${said}`;
    });
  });
}
