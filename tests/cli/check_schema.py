"""Checks a JSON file against a JSON Schema: python3 check_schema.py SCHEMA FILE

Knows the keywords that schemas/ uses and refuses any other, so that nothing in a schema is passed over. Prints what is wrong
by path, one line each, and exits 1; prints nothing and exits 0 when the file conforms.
"""
import json
import re
import sys

NOTES = {"$schema", "$defs", "title", "description", "default"}
TYPES = {"object": dict, "array": list, "string": str, "boolean": bool, "null": type(None), "number": (int, float)}


def is_type(value, name):
    if isinstance(value, bool):
        return name == "boolean"
    if name == "integer":
        return isinstance(value, int) or (isinstance(value, float) and value.is_integer())
    return isinstance(value, TYPES[name])


def resolve(root, reference):
    for part in reference.removeprefix("#/").split("/"):
        root = root[part]
    return root


def members(value, schema, root, path):
    known = schema.get("properties", {})
    for key, member in value.items():
        if key in known:
            yield from complaints(member, known[key], root, f"{path}.{key}")
        elif "additionalProperties" in schema:
            yield from complaints(member, schema["additionalProperties"], root, f"{path}.{key}")


def complaints(value, schema, root, path="$"):
    if schema is False:
        yield f"{path}: is not in the schema"
    if isinstance(schema, bool):
        return
    for word, want in schema.items():
        wrong = False
        if word in NOTES or word == "additionalProperties":
            continue
        if word == "$ref":
            yield from complaints(value, resolve(root, want), root, path)
        elif word == "properties":
            if isinstance(value, dict):
                yield from members(value, schema, root, path)
        elif word == "items":
            for i, item in enumerate(value if isinstance(value, list) else []):
                yield from complaints(item, want, root, f"{path}[{i}]")
        elif word == "allOf":
            for each in want:
                yield from complaints(value, each, root, path)
        elif word == "oneOf":
            wrong = sum(not any(complaints(value, each, root, path)) for each in want) != 1
        elif word == "if":
            branch = "else" if any(complaints(value, want, root, path)) else "then"
            yield from complaints(value, schema.get(branch, True), root, path)
        elif word in ("then", "else"):
            continue
        elif word == "type":
            wrong = not any(is_type(value, name) for name in ([want] if isinstance(want, str) else want))
        elif word == "const":
            wrong = value != want
        elif word == "enum":
            wrong = value not in want
        elif word == "required":
            for key in want:
                if isinstance(value, dict) and key not in value:
                    yield f"{path}: has no '{key}'"
        elif word == "pattern":
            wrong = isinstance(value, str) and not re.search(want, value)
        elif word == "minItems":
            wrong = isinstance(value, list) and len(value) < want
        elif word in ("minimum", "maximum", "exclusiveMinimum", "multipleOf"):
            wrong = is_type(value, "number") and {"minimum": lambda: value < want, "maximum": lambda: value > want,
                                                  "exclusiveMinimum": lambda: value <= want,
                                                  "multipleOf": lambda: value % want != 0}[word]()
        else:
            raise SystemExit(f"the schema's keyword '{word}' is not known here")
        if wrong:
            yield f"{path}: {json.dumps(value)[:80]} does not satisfy {word} {json.dumps(want)[:120]}"


def main():
    with open(sys.argv[1]) as file:
        schema = json.load(file)
    with open(sys.argv[2]) as file:
        found = list(complaints(json.load(file), schema, schema))
    print("\n".join(found), end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
