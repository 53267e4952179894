// What became of a request, in the fewest words.

import { type AuditLine, isGoingOn } from "@/kinds/audit";
import { words } from "@/words";

export function answerOf(line: AuditLine): string {
  const code = line.responseStatus?.code;
  if (code === undefined) return line.responseStatus ? words.audit.left : "–";
  return isGoingOn(line) ? words.audit.goesOn : String(code);
}
