"""A Hub on loopback, for the real client: repositories in memory, large files by LFS only, tokens for writing.

It speaks what the client asks for when it creates a repository, uploads a folder and fetches a snapshot. A file of
`LARGEST_REGULAR` bytes or more, or one that is not text, must come by LFS: in one part, or in parts of `PART` bytes.
Sent inside a commit it is refused, as the Hub does.
"""

import base64
import hashlib
import json
import threading
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote

TOKEN = "stand-in"
LARGEST_REGULAR = 100_000
PART = 1_000_000


class HubStandIn:
    """Use as a context: `endpoint` is its address, `repositories` what it holds, `seen` what it was asked for."""

    def __init__(self):
        self.repositories = {}
        """(kind, OWNER/NAME) to paths and contents; kind is "models" or "datasets"."""
        self.large = {}
        self.parts = {}
        self.seen = Counter()
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), lambda *a: _Request(self, *a))
        self.endpoint = f"http://127.0.0.1:{self.server.server_port}"
        self.storage = f"http://localhost:{self.server.server_port}"
        """The same server by another name: the client takes redirects within one host for moved repositories."""

    def __enter__(self):
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()

    def revision(self, kind, name):
        files = self.repositories[kind, name]
        listed = json.dumps({path: hashlib.sha256(files[path]).hexdigest() for path in sorted(files)})
        return hashlib.sha1(listed.encode()).hexdigest()


class _Request(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def __init__(self, hub, *arguments):
        self.hub = hub
        super().__init__(*arguments)

    def log_message(self, *_):
        pass

    def answer(self, status, value=b"", **headers):
        body = value if isinstance(value, bytes) else json.dumps(value).encode()
        self.send_response(status)
        for name, text in headers.items():
            self.send_header(name.replace("_", "-"), str(text))
        if "Content_Length" not in headers:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def body(self):
        if self.headers.get("Transfer-Encoding") == "chunked":
            parts = []
            while size := int(self.rfile.readline(), 16):
                parts.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(parts)
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def repository(self, words):
        """Kind, OWNER/NAME and the rest of a path such as /datasets/OWNER/NAME/resolve/main/FILE."""
        kind = "models"
        if words[0] in ("models", "datasets"):
            kind, *words = words
        return kind, "/".join(words[:2]), words[2:]

    def do_POST(self):
        words, body = self.path.partition("?")[0].strip("/").split("/"), self.body()
        if words == ["api", "validate-yaml"]:
            return self.answer(200, {"errors": [], "warnings": []})
        if self.headers.get("Authorization") != f"Bearer {TOKEN}" and words[0] != "lfs":
            return self.answer(401, {"error": "Invalid credentials"}, X_Error_Message="Invalid credentials")
        if words == ["api", "repos", "create"]:
            asked = json.loads(body)
            name = f"{asked['organization']}/{asked['name']}" if asked.get("organization") else asked["name"]
            self.hub.repositories.setdefault((asked.get("type", "model") + "s", name), {})
            return self.answer(200, {"url": f"{self.hub.endpoint}/{name}", "id": name})
        if words[-3:] == ["lfs", "objects", "batch"]:
            self.hub.seen["lfs batch"] += 1
            actions = [self.lfs_action(wanted) for wanted in json.loads(body)["objects"]]
            return self.answer(200, {"transfer": "basic", "objects": actions})
        if words[0] == "lfs":
            return self.complete(words[1], json.loads(body))
        kind, name, rest = self.repository(words[1:])
        if rest[0] == "preupload":
            files = [{**self.mode(each), "path": each["path"]} for each in json.loads(body)["files"]]
            return self.answer(200, {"files": files})
        if rest[0] == "commit":
            return self.commit(kind, name, [json.loads(line) for line in body.splitlines()])
        return self.answer(404)

    def mode(self, file):
        is_large = file["size"] >= LARGEST_REGULAR or b"\0" in base64.b64decode(file["sample"])
        return {"uploadMode": "lfs" if is_large else "regular", "shouldIgnore": False}

    def lfs_action(self, wanted):
        address = f"{self.hub.storage}/lfs/{wanted['oid']}"
        header = {}
        if wanted["size"] > PART:
            count = -(-wanted["size"] // PART)
            header = {"chunk_size": str(PART), **{str(n): f"{address}/{n}" for n in range(1, count + 1)}}
        return {**wanted, "actions": {"upload": {"href": address, "header": header}}}

    def do_PUT(self):
        _, oid, *part = self.path.strip("/").split("/")
        content = self.body()
        if part:
            self.hub.seen["lfs part"] += 1
            self.hub.parts[oid, int(part[0])] = content
            return self.answer(200, ETag=f'"{part[0]}"')
        return self.store(oid, content)

    def complete(self, oid, asked):
        return self.store(oid, b"".join(self.hub.parts.pop((oid, part["partNumber"])) for part in asked["parts"]))

    def store(self, oid, content):
        if hashlib.sha256(content).hexdigest() != oid:
            return self.answer(400, {"error": "content differs from its name"})
        self.hub.large[oid] = content
        self.hub.seen["lfs file"] += 1
        return self.answer(200, {})

    def commit(self, kind, name, lines):
        files = dict(self.hub.repositories[kind, name])
        for line in lines:
            value = line["value"]
            if line["key"] == "file":
                content = base64.b64decode(value["content"])
                if len(content) >= LARGEST_REGULAR:
                    return self.answer(400, {"error": f"{value['path']} must be sent by LFS"})
                files[value["path"]] = content
            elif line["key"] == "lfsFile":
                files[value["path"]] = self.hub.large[value["oid"]]
        self.hub.repositories[kind, name] = files
        oid = self.hub.revision(kind, name)
        address = f"{self.hub.endpoint}/{name}/commit/{oid}"
        return self.answer(200, {"success": True, "commitOid": oid, "commitUrl": address})

    def do_GET(self):
        words = unquote(self.path.partition("?")[0]).strip("/").split("/")
        is_api = words[0] == "api"
        kind, name, rest = self.repository(words[1:] if is_api else words)
        if words[0] == "lfs":
            return self.answer(200, self.hub.large[words[1]])
        if (kind, name) not in self.hub.repositories:
            return self.answer(404, {"error": "Repository not found"}, X_Error_Code="RepoNotFound")
        files, revision = self.hub.repositories[kind, name], self.hub.revision(kind, name)
        if is_api and rest[:1] in ([], ["revision"]):
            siblings = [{"rfilename": path} for path in sorted(files)]
            return self.answer(200, {"id": name, "sha": revision, "siblings": siblings, "private": False, "tags": []})
        if is_api and rest[0] == "tree":
            entries = [
                {"type": "file", "path": path, "size": len(files[path]), "oid": hashlib.sha1(files[path]).hexdigest()}
                for path in sorted(files)
            ]
            return self.answer(200, entries)
        path = "/".join(rest[2:])
        if rest[:1] != ["resolve"] or path not in files:
            return self.answer(404, {"error": "Entry not found"}, X_Error_Code="EntryNotFound")
        content = files[path]
        about = {"X_Repo_Commit": revision, "ETag": f'"{hashlib.sha1(content).hexdigest()}"'}
        oid = hashlib.sha256(content).hexdigest()
        if oid in self.hub.large:
            about |= {"X_Linked_ETag": f'"{oid}"', "X_Linked_Size": len(content)}
            return self.answer(302, b"", Location=f"{self.hub.storage}/lfs/{oid}", **about)
        self.hub.seen[f"fetched {path}"] += self.command == "GET"
        return self.answer(200, content, Content_Length=len(content), **about)

    def do_HEAD(self):
        self.do_GET()
