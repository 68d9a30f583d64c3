import { existsSync } from "node:fs";
import { dirname, join } from "node:path";

/** A program and its arguments. */
export interface Command {
  command: string;
  args: string[];
}

/**
 * The accelify command to run.
 *
 * @param configured the setting `accelify.command`; empty for none
 * @param python the interpreter that the Python extension has selected, if there is one
 * @param exists whether a file exists
 * @param platform Node's name of the operating system
 */
export function accelifyCommand(
  configured: readonly string[],
  python: string | undefined,
  exists: (path: string) => boolean = existsSync,
  platform: string = process.platform,
): Command {
  if (configured.length > 0) {
    return { command: configured[0], args: configured.slice(1) };
  }
  if (python !== undefined) {
    const name = platform === "win32" ? "accelify.exe" : "accelify";
    const beside = join(dirname(python), name);
    if (exists(beside)) {
      return { command: beside, args: [] };
    }
    if (exists(python)) {
      return { command: python, args: ["-m", "accelify"] };
    }
  }
  return { command: "accelify", args: [] };
}
