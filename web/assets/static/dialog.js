// Native dialogs: data-dialog opens one by id; a click on the backdrop closes it. Escape and focus are the browser's.
document.addEventListener("click", (e) => {
  const opener = e.target.closest("[data-dialog]");
  if (opener) document.getElementById(opener.dataset.dialog).showModal();
  else if (e.target.matches("dialog[open]")) e.target.close();
});
