// Loads the bundle as the editor would, with a stand-in for the editor's module, and looks at what it asks of it.
const assert = require("node:assert/strict");
const { execFileSync } = require("node:child_process");
const fs = require("node:fs");
const Module = require("node:module");
const os = require("node:os");
const path = require("node:path");
const { test } = require("node:test");

const root = path.join(__dirname, "..");
const manifest = JSON.parse(fs.readFileSync(path.join(root, "package.json"), "utf8"));

/** Any object of the editor: can be called, constructed, and has every attribute. */
function anything() {
  const whole = new Proxy(function () {}, {
    apply: () => anything(),
    // A class that is made of one of the editor's has its methods.
    construct: (target, args, made) => (made === whole ? anything() : Reflect.construct(target, args, made)),
    get: (target, name) => {
      if (name === Symbol.toPrimitive) return () => 0;
      if (name === Symbol.iterator) return function* () {};
      if (name === "then") return undefined;
      if (name === "prototype") return target.prototype;
      return anything();
    },
  });
  return whole;
}

/** The extension with an editor whose answers are `editor`, and what it registered and showed. */
function loaded({ configuration = [], python } = {}) {
  const seen = { commands: {}, providers: {}, errors: [], diffs: [], information: [] };
  const vscode = new Proxy(
    {
      version: "1.90.0",
      commands: {
        registerCommand: (name, run) => ((seen.commands[name] = run), { dispose() {} }),
        executeCommand: async (name, ...args) => seen.diffs.push([name, ...args]),
      },
      extensions: {
        getExtension: () =>
          python && {
            isActive: true,
            exports: { environments: { getActiveEnvironmentPath: () => ({ path: python }) } },
          },
        all: [],
        onDidChange: () => ({ dispose() {} }),
      },
      window: new Proxy(
        {
          showErrorMessage: async (text) => seen.errors.push(text),
          showInformationMessage: async (text) => seen.information.push(text),
        },
        { get: (own, name) => own[name] ?? (seen.window?.[name] ?? anything()) },
      ),
      workspace: new Proxy(
        {
          getConfiguration: () => ({ get: (name, otherwise) => (name === "command" ? configuration : otherwise) }),
          onDidChangeConfiguration: () => ({ dispose() {} }),
          registerTextDocumentContentProvider: (scheme, provider) => (
            (seen.providers[scheme] = provider), { dispose() {} }
          ),
          openTextDocument: async (uri) => ({ text: await seen.providers[uri.scheme].provideTextDocumentContent(uri) }),
        },
        { get: (own, name) => own[name] ?? anything() },
      ),
    },
    { get: (own, name) => own[name] ?? anything() },
  );
  const load = Module._load;
  Module._load = function (request, ...rest) {
    return request === "vscode" ? vscode : load.call(this, request, ...rest);
  };
  try {
    const bundle = path.join(root, manifest.main);
    delete require.cache[require.resolve(bundle)];
    return { extension: require(bundle), seen };
  } finally {
    Module._load = load;
  }
}

/** A stand-in for accelify that writes down its arguments, answers as a server without abilities, and converts. */
function recorder(folder) {
  const file = path.join(folder, "accelify");
  const text = `#!${process.execPath}
const fs = require("node:fs");
fs.appendFileSync(${JSON.stringify(path.join(folder, "arguments"))}, process.argv.slice(2).join(" ") + "\\n");
if (process.argv[2] === "convert") {
  console.log("converted");
  process.exit(1);
}
process.stdin.on("data", (data) => {
  for (const [, id, method] of String(data).matchAll(/"id":(\\d+),"method":"(\\w+)"/g)) {
    const answer = JSON.stringify({ jsonrpc: "2.0", id: Number(id), result: method === "initialize" ? { capabilities: {} } : null });
    process.stdout.write("Content-Length: " + answer.length + "\\r\\n\\r\\n" + answer);
  }
  if (String(data).includes('"method":"exit"')) process.exit(0);
});
`;
  fs.writeFileSync(file, text, { mode: 0o755 });
  return file;
}

function temporary(t) {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), "accelify-"));
  t.after(() => fs.rmSync(folder, { recursive: true, force: true }));
  return folder;
}

test("every command of the manifest is registered", async () => {
  const { extension, seen } = loaded({ configuration: ["/nowhere/accelify"] });
  await extension.activate({ subscriptions: [] });
  const named = manifest.contributes.commands.map((one) => one.command).sort();
  assert.deepEqual(Object.keys(seen.commands).sort(), named);
});

test("a server that cannot be started is said with the way out", async () => {
  const { extension, seen } = loaded({ configuration: ["/nowhere/accelify", "--quiet"] });
  await extension.activate({ subscriptions: [] });
  const [said] = seen.errors.filter((text) => text.startsWith("accelify:"));
  assert.match(said, /`\/nowhere\/accelify --quiet server` could not be started/);
  assert.match(said, /extra `server`/);
});

test("the environment that the Python extension has selected is taken", { skip: process.platform === "win32" }, async (t) => {
  const folder = temporary(t);
  recorder(folder);
  const { extension, seen } = loaded({ python: path.join(folder, "python") });
  await extension.activate({ subscriptions: [] });
  await extension.deactivate();
  assert.deepEqual(seen.errors, []);
  assert.equal(fs.readFileSync(path.join(folder, "arguments"), "utf8").split("\n")[0], "server");
});

test("the conversion is shown beside the script", { skip: process.platform === "win32" }, async (t) => {
  const folder = temporary(t);
  const file = recorder(folder);
  const { extension, seen } = loaded({ configuration: [file] });
  await extension.activate({ subscriptions: [] });
  const uri = (scheme) => ({
    scheme,
    fsPath: path.join(folder, "train.py"),
    with: (changes) => uri(changes.scheme ?? scheme),
  });
  seen.window = { activeTextEditor: { document: { languageId: "python", uri: uri("file"), save: async () => true } } };
  await seen.commands["accelify.showConversion"]();
  assert.deepEqual(seen.errors, []);
  const [[name, before, after]] = seen.diffs;
  assert.equal(name, "vscode.diff");
  assert.equal(before.scheme, "file");
  assert.equal(await seen.providers[after.scheme].provideTextDocumentContent(after), "converted\n");
  const run = fs.readFileSync(path.join(folder, "arguments"), "utf8");
  assert.match(run, /convert .*train\.py --output -/);
  await extension.deactivate();
});

test("the package holds the bundle and nothing of the sources", { skip: !fs.existsSync(path.join(root, "accelify.vsix")) }, () => {
  const names = execFileSync("unzip", ["-Z1", path.join(root, "accelify.vsix")], { encoding: "utf8" }).trim().split("\n");
  assert.ok(names.includes("extension/dist/extension.js"));
  assert.ok(!names.some((name) => name.includes("node_modules") || name.endsWith(".ts")));
});
