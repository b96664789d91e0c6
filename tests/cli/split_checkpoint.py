"""Splits a model folder's model.safetensors over several files with an index, as large checkpoints are published.

    python3 split_checkpoint.py FOLDER OUT [SHARDS]
"""
import json
import os
import shutil
import struct
import sys


def main():
    folder, out = sys.argv[1:3]
    shards = int(sys.argv[3]) if len(sys.argv) > 3 else 2
    os.makedirs(out)
    shutil.copy(os.path.join(folder, "config.json"), out)
    with open(os.path.join(folder, "model.safetensors"), "rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        data = file.read()
    header.pop("__metadata__", None)
    index = {}
    for shard in range(shards):
        name, entries, parts, size = f"model-{shard + 1:05}-of-{shards:05}.safetensors", {}, [], 0
        for tensor in list(header)[shard::shards]:
            first, last = header[tensor]["data_offsets"]
            entries[tensor] = {**header[tensor], "data_offsets": [size, size + last - first]}
            parts.append(data[first:last])
            size += last - first
            index[tensor] = name
        text = json.dumps(entries).encode()
        with open(os.path.join(out, name), "wb") as file:
            file.write(struct.pack("<Q", len(text)) + text + b"".join(parts))
    with open(os.path.join(out, "model.safetensors.index.json"), "w") as file:
        json.dump({"metadata": {"total_size": len(data)}, "weight_map": index}, file)


if __name__ == "__main__":
    main()
