// Pressing a rule shows its edits alone, and a link opens the script it leads into; the page is whole without this.
const buttons = [...document.querySelectorAll("button.rule")];
for (const button of buttons) button.onclick = () => {
  const on = button.getAttribute("aria-pressed") !== "true";
  for (const other of buttons) other.setAttribute("aria-pressed", other === button && on);
  for (const edit of document.querySelectorAll(".edit")) {
    const shown = edit.dataset.rules.split(" ").includes(button.dataset.rule);
    edit.classList.toggle("muted", on && !shown);
    if (on && shown) edit.closest("details.file").open = true;
  }
  if (on) document.querySelector(`.edit[data-rules~="${button.dataset.rule}"]`)?.scrollIntoView({block: "center"});
};
for (const link of document.querySelectorAll('a[href^="#file"]'))
  link.onclick = () => { document.querySelector(link.getAttribute("href")).closest("details.file").open = true; };
