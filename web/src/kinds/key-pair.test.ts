import { expect, it } from "vitest";

import { nameFrom, troubleOfKey, typeOfKey } from "./key-pair";

it("a key says of which type it is", () => {
  expect(typeOfKey("ssh-ed25519 AAAA anna@home")).toBe("ed25519");
  expect(typeOfKey("ssh-rsa AAAA")).toBe("rsa");
  expect(typeOfKey('no-pty,command="x y" ecdsa-sha2-nistp256 AAAA')).toBe("ecdsa-p256");
  expect(typeOfKey("sk-ssh-ed25519@openssh.com AAAA")).toBe("ed25519");
  expect(typeOfKey("nonsense")).toBe("");
});

it("a key is called by its comment", () => {
  expect(nameFrom("ssh-ed25519 AAAA Anna.B@Home")).toBe("anna-b-home");
  expect(nameFrom("ssh-ed25519 AAAA")).toBe("");
});

it("what is no single public key is refused before it leaves the browser", () => {
  expect(troubleOfKey("-----BEGIN OPENSSH PRIVATE KEY-----\nAAAA")).toBe("private");
  expect(troubleOfKey("ssh-rsa AAAA\nssh-rsa BBBB")).toBe("several");
  expect(troubleOfKey("hello")).toBe("none");
  expect(troubleOfKey("ssh-rsa AAAA me\n\n")).toBeUndefined();
});
