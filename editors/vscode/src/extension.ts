import { execFile } from "node:child_process";
import { dirname } from "node:path";
import * as vscode from "vscode";
import { LanguageClient } from "vscode-languageclient/node";
import { accelifyCommand, Command } from "./command";

const SCHEME = "accelify-conversion";

let client: LanguageClient | undefined;

/** Start the server; called by the editor when the first Python file is opened. */
export async function activate(context: vscode.ExtensionContext): Promise<void> {
  context.subscriptions.push(
    vscode.commands.registerCommand("accelify.restart", restart),
    vscode.commands.registerCommand("accelify.showConversion", showConversion),
    vscode.workspace.registerTextDocumentContentProvider(SCHEME, { provideTextDocumentContent: converted }),
    vscode.workspace.onDidChangeConfiguration(async (event) => {
      if (event.affectsConfiguration("accelify.command")) {
        await restart();
      }
    }),
  );
  await start();
}

export async function deactivate(): Promise<void> {
  const running = client;
  client = undefined;
  await running?.stop();
}

async function restart(): Promise<void> {
  await deactivate();
  await start();
}

async function start(): Promise<void> {
  const { command, args } = await chosen();
  const starting = new LanguageClient(
    "accelify",
    "accelify",
    { command, args: [...args, "server"] },
    { documentSelector: [{ scheme: "file", language: "python" }, { scheme: "untitled", language: "python" }] },
  );
  client = starting;
  try {
    await starting.start();
  } catch (error) {
    client = undefined;
    void vscode.window.showErrorMessage(
      `accelify: \`${[command, ...args].join(" ")} server\` could not be started (${reason(error)}). ` +
        "Install accelify with its extra `server` in this environment, or set `accelify.command`.",
    );
  }
}

async function chosen(): Promise<Command> {
  const configured = vscode.workspace.getConfiguration("accelify").get<string[]>("command", []);
  return accelifyCommand(configured, configured.length > 0 ? undefined : await selectedPython());
}

/** The interpreter that the Python extension has selected; none without that extension. */
async function selectedPython(): Promise<string | undefined> {
  const extension = vscode.extensions.getExtension("ms-python.python");
  if (extension === undefined) {
    return undefined;
  }
  const api = extension.isActive ? extension.exports : await extension.activate();
  return api?.environments?.getActiveEnvironmentPath?.()?.path;
}

async function showConversion(): Promise<void> {
  const document = vscode.window.activeTextEditor?.document;
  if (document === undefined || document.languageId !== "python" || document.uri.scheme !== "file") {
    void vscode.window.showInformationMessage("accelify: open the training script first.");
    return;
  }
  await document.save();
  const target = document.uri.with({ scheme: SCHEME, query: String(Date.now()) });
  try {
    await vscode.workspace.openTextDocument(target);
  } catch (error) {
    void vscode.window.showErrorMessage(`accelify: ${reason(error)}`);
    return;
  }
  await vscode.commands.executeCommand("vscode.diff", document.uri, target, "accelify: the script and its conversion");
}

/** What `accelify convert` writes for a script, without writing it. */
async function converted(uri: vscode.Uri): Promise<string> {
  const { command, args } = await chosen();
  const options = { cwd: dirname(uri.fsPath), maxBuffer: 1 << 26 };
  return new Promise((resolve, reject) => {
    execFile(command, [...args, "convert", uri.fsPath, "--output", "-"], options, (error, stdout, stderr) => {
      // Exit status 1: converted, with places left for a person.
      if (error !== null && error.code !== 1) {
        reject(new Error(stderr.trim() || error.message));
      } else {
        resolve(stdout);
      }
    });
  });
}

function reason(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
