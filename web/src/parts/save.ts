// Files that the page itself has: what is saved does not go through an address that others could open.

export function saveFile(name: string, text: string, type = "application/octet-stream") {
  const address = URL.createObjectURL(new Blob([text], { type }));
  const link = document.createElement("a");
  link.href = address;
  link.download = name;
  link.click();
  // The browser has it once it has begun, which is not yet.
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}
