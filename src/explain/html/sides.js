// Both sides of a page of one model, and who belongs to whom.

const model = data.model.items;
const planned = data.planned.items;
const isKernel = (k) => planned[k].kernel !== "";
const timeOf = (k) => (data.summary.is_measured && planned[k].measured !== null ? planned[k].measured : planned[k].seconds);
const kernels = planned.map((_, k) => k).filter(isKernel);
const wholeTime = kernels.reduce((sum, k) => sum + timeOf(k), 0);
const longest = kernels.reduce((most, k) => Math.max(most, timeOf(k)), 0);
const timeIs = data.summary.is_measured ? "measured" : "estimated";

// Items of the model by name; names of inputs and outputs may be those of nodes, which come first.
const modelByName = new Map();
for (const wanted of [true, false]) {
  model.forEach((item, i) => {
    const isNode = item.state !== "input" && item.state !== "output";
    if (isNode === wanted && !modelByName.has(item.name)) modelByName.set(item.name, i);
  });
}

// Of each name its region and which copy of it: kernels before and after belong together if they are of one copy.
const copyOf = new Map();
data.regions.forEach((region, r) => {
  [region.nodes, ...region.alike].forEach((nodes, copy) => nodes.forEach((n) => copyOf.set(n, `${r}/${copy}`)));
});
const modelCopy = (i) => copyOf.get(model[i].name);
const kernelCopy = (k) => (isKernel(k) && planned[k].nodes.length ? copyOf.get(planned[k].nodes[0]) : undefined);

const modelsOfCopy = grouped(model.length, modelCopy);
const kernelsOfCopy = grouped(planned.length, kernelCopy);

const nodeLink = (i) => link("node", model[i].name, model[i].name, `${model[i].op} ${model[i].ty}`);
const kernelLink = (k) => link("kernel", k, kernelName(k));

function kernelName(k) {
  const item = planned[k];
  if (!isKernel(k)) return `${item.op} ${item.nodes[0]}`;
  const more = item.nodes.length > 1 ? ` and ${item.nodes.length - 1} more` : "";
  return `${item.op} (${item.nodes.length ? item.nodes[0] + more : "no node of the model"})`;
}

// Results of nodes that are kept as they are: inputs of what is drawn, with what is said of such a node.
const keptAsItIs = new Map(data.left_out.flatMap((it, l) => it.inputs.map((i) => [i, l])));
