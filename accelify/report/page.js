// Pressing a rule shows its edits alone; the page is whole without this.
const buttons = [...document.querySelectorAll("button.rule")];
for (const button of buttons) button.onclick = () => {
  const on = button.getAttribute("aria-pressed") !== "true";
  for (const other of buttons) other.setAttribute("aria-pressed", other === button && on);
  for (const edit of document.querySelectorAll(".edit"))
    edit.classList.toggle("muted", on && !edit.dataset.rules.split(" ").includes(button.dataset.rule));
  if (on) document.querySelector(`.edit[data-rules~="${button.dataset.rule}"]`)?.scrollIntoView({block: "center"});
};
