// Starts `mlc-rewrite lsp` for `.rules` texts. Everything else is the server's.

const { workspace } = require("vscode");
const { LanguageClient } = require("vscode-languageclient/node");

let client;

exports.activate = async function () {
  const settings = workspace.getConfiguration("mlc-rewrite");
  const server = { command: settings.get("command"), args: ["lsp"] };
  client = new LanguageClient("mlc-rewrite", "mlc-rewrite", server, {
    documentSelector: [{ language: "rules" }],
    initializationOptions: { rules: settings.get("rules"), models: settings.get("models") },
    synchronize: { fileEvents: workspace.createFileSystemWatcher("**/*.rules") },
  });
  await client.start();
};

exports.deactivate = function () {
  return client?.stop();
};
