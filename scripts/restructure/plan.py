NEW_ROOMS = {
    "lock": "What servers were approved to be: `mooring.lock`, its comparison with listings, and the cache.",
    "transport": "Byte transports: child processes, HTTP and legacy SSE.",
    "auth": "OAuth for HTTP servers: metadata, login, tokens.",
    "servers": "Connections to servers: started, kept, listed and called.",
    "results": "What happens to a result between the server and the model.",
    "config/edit": "Configuration files edited in place, with comments and layout kept.",
    "config/programs": "Configuration files of other programs: read, written, translated.",
}
PACKAGES = set()
M = MERGES = {}

def move(new, *olds, doc=None):
    MERGES[new] = (doc, list(olds))

# top level
move("policy", "asking", "approval", "trust", doc="Decide whether a server may be started and whether a call may be made.")
move("audit", "store.auditlog", "audit", doc="Audit log of a host: every call, read and prompt, written off the event loop.")
move("concurrency", "clock", "tasks", "callbacks", "stream", doc="Clock, background tasks, threads, application callbacks and event streams.")
move("telemetry", "telemetry", "pulse", "auditing", doc="OpenTelemetry spans and metrics, the monitor of event loop delays, and the audit log in use.")
move("prompts", "prompting")
move("resources", "core.cache", "resources", "builtin", doc="Resources of all servers: listed, read through a cache, subscribed to, and offered to models as tools.")
move("adapters.semantic", "semantic")
move("agents.context", "context")
# core
move("core.types", "core.types", "core.known", "core.hidden", doc="Values of the catalog: tools, resources, prompts, snapshots, results, server status.")
move("core.json_values", "core.weight", "core.sharing", "core.arguments", doc="JSON values: whether they can be sent, how large they are, and equal values shared.")
move("core.value", "core.values")
move("core.names", "core.lookalike", "core.names", doc="Local tool names: (server, remote name) -> a name that every model provider accepts.")
move("core.catalog", "core.catalog", "core.merging", doc="The catalog: snapshots of all servers merged into one immutable value, and its changes.")
move("core.search_index", "core.inverted")
move("core.search", "core.documents", "core.search", doc="Search for tools by what they are for.")
move("core.lexicon", "core.lexicon", "core.words", doc="Text to search terms: words split, stemmed and grouped by meaning.")
move("core.discovery", "core.discovery", "core.exposure", "core.deferral", doc="Discovery: three tools in place of a long list, and which tools a session shows its model.")
move("core.text", "core.text", "core.untrusted", "core.near", doc="Untrusted text made safe to show, and the names nearest to one that does not exist.")
move("core.redact", "core.secret", "core.redact", doc="Secrets as values, and their removal from text in every encoding in which programs repeat them.")
move("config.secret_scan", "core.suspect")
move("core.uris", "core.uris", "core.templates", doc="Resource URIs: which may be read, and whether one matches a URI template (RFC 6570, levels 1 to 3).")
move("core.addresses", "core.egress")
move("core.elicitation", "core.forms", "core.elicitation", doc="Elicitation: questions of servers to the user, their forms, and the answers.")
move("core.builtin_tools", "core.logintool", "core.prompts", "core.reading", doc="Definitions of mooring's own tools: login, prompts as tools, and `result_read`.")
move("core.injection_scan", "core.poisonrules", "core.poison", doc="Findings in texts of servers: hidden characters, and instructions to the model.")
# config
move("config.models", "core.config")
move("config.network", "core.authconfig", "core.tls", doc="Settings of one server's login, TLS and proxy.")
move("config.sections", "core.policy", "core.gateway", doc="Settings of the policy and the gateway.")
move("config.audit", "core.audit")
move("config.validate", "core.checks", "core.problems", "core.settings", doc="Validation of settings: checks of single values, readable problems, and the base class of settings.")
move("config.units", "core.durations")
move("config.references", "core.expand")
move("config.secrets", "config.secrets", "config.resolving", doc="Secret references resolved to values, when a server is connected.")
move("config.trust", "core.scopes", "core.trust", doc="What a found project file would do, and how its settings combine with the user's own.")
move("config.approvals", "config.approvals", "config.project", doc="Project files approved on this machine, and what an unapproved one may say.")
move("config.formats", "config.fields", "config.formats", doc="Accepted shapes of configuration files, reduced to server entries and host-wide settings.")
move("config.yaml", "config.yamldoc")
move("config.documents", "config.syntax", "config.documents", doc="Configuration files as plain data: decoded, parsed by their suffix, bounded.")
move("config.files", "config.homes", "config.files", "config.kept", doc="Where mooring keeps its files, and how they are written: whole or not at all.")
move("config.watch", "config.watch", "follow", doc="Configuration files watched while the host runs, and changes applied.")
move("config.plan", "core.plan")
move("config.edit.text", "config.spans", "config.edit", "config.entries", doc="Configuration text with single values and server entries changed in place.")
move("config.edit.json", "config.editjson")
move("config.edit.toml", "config.edittoml")
move("config.edit.yaml", "config.edityaml")
move("config.programs.model", "config.hosts.machine", "config.hosts.program", doc="What is known about another program: its files, its spelling of a server, and what it can express.")
move("config.programs.table", "config.hosts.adapt", "config.hosts.writable", "config.hosts.table", doc="Every program whose configuration mooring reads or writes, as data.")
move("config.programs.references", "config.hosts.references", "config.hosts.scrub", doc="Each program's spelling of variables, and literal secrets replaced by references.")
move("config.programs.read", "config.hosts.reading", "config.hosts.transfer", doc="Server entries read from another program's file, and which of them are imported.")
move("config.programs.write", "config.hosts.writing")
move("config.programs", "config.hosts")
# lock
move("lock.model", "core.pin")
move("lock.definitions", "core.definitions")
move("lock.compare", "core.lock")
move("lock.diff", "core.changes", "core.changetext", doc="Differences between two snapshots of one server, entry by entry, and their text.")
move("lock.schema_diff", "core.schemachange")
move("lock.text", "core.locktext")
move("lock.cache", "core.pinrows", "core.prepared", "config.pincache", "config.lockfile", doc="Files of pins: `mooring.lock`, its checked form, and the last listing of servers without a lock.")
move("lock.enforce", "pins")
move("lock.guard", "core.admitted")
# transport
move("transport.limits", "net.deadline", "net.flood", doc="Deadlines of requests, and limits on what a server may send unasked.")
move("transport.base", "net.trace", "net.rpc", doc="What every transport shares: requests out, messages in, and the trace of both.")
move("transport.message", "net.heap", "net.message", doc="JSON-RPC messages: to bytes and back, their answers, and error codes.")
move("transport.duplex", "net.duplex")
move("transport.stdio", "net.stdio")
move("transport.process", "net.reaping", "net.firsterrors", "net.process", doc="A child process: spawned without a shell, watched, and ended with everything that it started.")
move("transport.process_tree", "net.lineage", "net.watchdog", doc="Descendants of child processes: marked, found, and ended, also when the host is killed.")
move("transport.http", "net.http")
move("transport.endpoint", "net.sse", "net.refusal", "net.endpoint", doc="One HTTP address of a server: requests with its headers, bounded bodies and event streams.")
move("transport.legacy_sse", "net.oldsse")
move("transport.pool", "net.way", "net.pool", doc="HTTP connections: TLS context and proxy of each server, and one shared pool.")
move("transport.wire", "net.wire")
move("transport.open", "net.open")
# auth
move("auth.metadata", "core.oauth")
move("auth.flow", "core.authorize", "net.oauth", doc="Steps of OAuth: discovery, registration, the authorization URL, and requests for tokens.")
move("auth.login", "net.login")
move("auth.credentials", "net.access")
move("auth.token_store", "core.grants", "net.tokens", doc="Tokens and clients of a login, and their storage between runs.")
move("auth.guarded_http", "net.egress")
# servers
move("servers.manager", "fleet")
move("servers.launcher", "identity", "launching", doc="How a connection is made: what all connections share, and the headers of one session.")
move("servers.start_queue", "net.starts")
move("servers.waiting", "muster")
move("servers.diagnosis", "core.diagnosis")
move("servers.catalog", "shelf", "offer", doc="The catalog of a host: snapshots in, locked and filtered catalog out.")
move("servers.connection", "net.exchange", "net.connection", doc="The provider for one MCP server: its verbs, while the supervisor keeps it connected.")
move("servers.requests", "net.allowance", "net.gate", "net.carrier", doc="One request to a server: concurrency limit, breaker, and retry where that is safe.")
move("servers.elicitation", "net.questions")
move("servers.input_required", "net.dialogue", "net.tasks", doc="Calls that a server does not answer at once: rounds of `input_required`, and tasks.")
move("servers.eras", "config.eracache", "net.lanes", doc="Connections of one server in both protocol eras, and which tools need the handshake era.")
move("servers.supervisor", "net.owner")
move("servers.status", "net.faults", "net.attempts", "net.states", doc="State of one server, results of its connection attempts, and errors of the transport as mooring errors.")
move("servers.listing", "net.listing")
move("servers.freshness", "net.freshness", "net.relisting", doc="Lists of one server kept fresh: notices, polling, relisting, and their guaranteed age.")
move("servers.notifications", "net.watching", "net.notices", doc="Notifications of servers, and subscriptions to resources.")
move("transport.forwarding", "net.passage", doc="Requests made for a client of a gateway: progress, log lines and questions forwarded.")
move("servers.active", "net.headers", "net.live", "net.loglevel", doc="An open connection: its transport, the negotiated protocol, and the metadata of each request.")
move("servers.negotiate", "net.negotiate")
# results
move("results.pipeline", "core.rules", "keeper", doc="Results on their way to the model: checked, converted, cut to the budget, stored, recorded.")
move("results.store", "store.folder", "store.blobs", "store.convert", "store.outputs", doc="Files that results leave: embedded files and outputs too large to show; private, bounded, cleaned up.")
move("results.artifacts", "store.artifacts")
move("results.output_schema", "conform")
move("results", "store")
# gateway
move("gateway.app", "gateway.server")
move("gateway.serve", "gateway.serve", "gateway.life", doc="Start a gateway for a running host, reload its settings, and stop it: transports, signals, drain.")
move("gateway.handlers", "gateway.request", "gateway.listing", "gateway.desk", doc="Answers of the gateway to each request of a client, for every transport.")
move("gateway.protocol", "gateway.protocol", "gateway.shapes", doc="Messages of both protocol eras as values: era of a request, refusals, results.")
move("gateway.clients", "gateway.outbox", "gateway.client", "gateway.registry", doc="Clients of the gateway: identity, capabilities, sessions, and what is being sent to them.")
move("gateway.auth", "gateway.checks", "gateway.tokens", "gateway.door", doc="Checks of HTTP requests before they are read: headers, origins, hosts, tokens.")
move("gateway.era_bridge", "gateway.state", "gateway.crossing", doc="Translation between the protocol eras: sealed request state, and resource subscriptions.")
move("gateway.suspended_calls", "gateway.parking")
move("gateway.subscriptions", "gateway.hub")
move("gateway.log_levels", "gateway.loudness")
move("gateway.profiles", "gateway.routes", "gateway.views", doc="Profiles: the part of the catalog that one kind of client sees.")
move("gateway.http", "gateway.streams", "gateway.http", doc="Streamable HTTP of the gateway, both eras on one port.")
move("gateway.http_server", "gateway.limits", "gateway.connections", "gateway.web", doc="HTTP server of the gateway: paths, connections, limits.")
move("gateway.stdio", "gateway.batch", "gateway.stdio", doc="The gateway on standard input and output; batches of 2025-03-26.")
move("gateway.legacy_sse", "gateway.oldsse")
# adapters, agents, testing
move("adapters._common", "adapters._offers", "adapters._render", "adapters._bridge", "adapters._answers", doc="What all adapters share: tools with compiled schemas, calls from any loop or thread, results as parts.")
move("agents.manager", "agents.bus", "agents.manager", "agents.prompt", doc="A synchronous manager of servers, and tools as a section of a prompt.")
move("testing.script", "testing.faults", "testing.script", doc="What a fake server offers, how it answers, and the faults it can show.")
move("testing.server", "testing.wires", "testing.server", "testing.clock", doc="A scripted MCP server for tests, over HTTP or as a child process, and a virtual clock.")
move("testing.recording", "testing.tape")
# cli
move("cli.event_loop", "cli.running")
move("cli.app", "cli.errordoc", "cli.app", doc="From `sys.argv` to an exit code: find the command, run it, and report every failure as one paragraph.")
move("cli.output", "cli.output", "cli.layout", doc="Output: results to standard output, messages to standard error, columns, colours.")
move("cli.progress", "cli.progress", "cli.bar", doc="Progress on standard error: servers that connect, and calls under way.")
move("cli.ask", "cli.asking", "cli.answering", doc="Questions on the terminal: yes or no, and elicitations of servers.")
move("cli.hosting", "cli.servers", "cli.hosting", doc="A host for one command, and the servers that the command is about.")
move("cli.editing", "cli.editing", "cli.moving", doc="Configuration files that a command changes: which one, the difference, and the confirmation.")
move("cli.arguments", "cli.arguments", "cli.filling", doc="Arguments of a call from `key=value` words, files and standard input, typed by the tool's schema.")
move("cli.login", "cli.browser", "cli.login", doc="`mooring login`: log in to a server, in a browser here or anywhere.")
move("cli.trace", "cli.tracing", "cli.strays", doc="For `mooring doctor`: messages between mooring and the servers written to a file, and orphaned servers.")
move("cli.watch_view", "cli.board", "cli.screen", doc="What `mooring watch` draws, and the terminal that it draws on.")
move("cli.eval", "core.recall", "cli.eval", doc="`mooring eval`: how well the search finds tools, on questions with known answers.")

RENAMES = {
    ("core.expand", "_Unknown"): "_UnknownReference",
    ("core.events", "AuthNeeded"): "LoginNeeded",
    ("muster", "Shown"): "ToolView",
    ("cli.watch", "Shown"): "WatchState",
    ("offer", "Offer"): "CatalogBuilder",
    ("shelf", "Shelf"): "SnapshotStore",
    ("gateway.views", "Offer"): "ProfileTools",
    ("adapters._offers", "Offer"): "CompiledTool",
    ("context", "Reader"): "ResourceReader",
    ("config.jsonc", "Reader"): "JsoncParser",
    ("core.schema.read", "Reader"): "SchemaReader",
    ("net.trace", "Exchange"): "TracedExchange",
    ("net.exchange", "Exchange"): "InputRounds",
    ("gateway.client", "Exchange"): "ClientExchange",
    ("net.deadline", "Watch"): "DeadlineTimer",
    ("core.config", "Watch"): "WatchSettings",
    ("gateway.connections", "Connection"): "ClientConnection",
    ("net.allowance", "Allowance"): "RelistLimit",
    ("net.flood", "Allowance"): "FloodLimit",
    ("net.gate", "Full"): "QueueFull",
    ("gateway.registry", "Full"): "TooManySessions",
    ("net.endpoint", "Endpoint"): "HttpEndpoint",
    ("gateway.http", "Endpoint"): "HttpHandler",
    ("demo.servers.weather", "Endpoint"): "WeatherHandler",
    ("core.grants", "Client"): "OAuthClient",
    ("gateway.request", "Request"): "ClientRequest",
    ("core.reading", "Request"): "ReadRequest",
    ("config.formats", "Shape"): "FileShape",
    ("store.outputs", "Output"): "StoredOutput",
    ("cli.import_", "Source"): "ImportSource",
    ("core.config", "Source"): "ConfigSource",
    ("adapters._bridge", "Source"): "ToolSource",
    ("adapters._bridge", "SyncSource"): "SyncToolSource",
    ("cli.editing", "Target"): "EditTarget",
    ("testing.script", "RefusedError"): "FakeError",
    ("core.egress", "RefusedError"): "RefusedAddressError",
    ("core.schema.back", "Field"): "FieldPlan",
    ("core.reading", "Piece"): "ResultPart",
    ("adapters._render", "Piece"): "ContentPart",
    ("adapters.google_adk", "_Toolset"): "_AdkToolset",
    ("adapters.google_adk", "_Tool"): "_AdkTool",
    ("adapters.pydantic_ai", "_Toolset"): "_PydanticToolset",
    ("adapters.pydantic_ai", "_Tool"): "_PydanticTool",
    ("adapters.strands", "_Tool"): "_StrandsTool",
    ("adapters.llama_index", "_Tool"): "_LlamaTool",
    ("adapters.langchain", "_Tool"): "_LangChainTool",
    ("adapters.smolagents", "_Tool"): "_SmolTool",
    ("adapters.llm", "ToolError"): "LlmToolError",
    ("adapters.smolagents", "ToolError"): "SmolToolError",
    ("fleet", "Fleet"): "ServerManager",
    ("fleet", "_Gate"): "_StartGate",
    ("keeper", "Keeper"): "ResultPipeline",
    ("approval", "Gatekeeper"): "PolicyEnforcer",
    ("net.owner", "Owner"): "Supervisor",
    ("net.carrier", "Carrier"): "RequestSender",
    ("net.gate", "Gate"): "ConcurrencyLimiter",
    ("net.live", "Live"): "ActiveConnection",
    ("net.passage", "Passage"): "ForwardedRequest",
    ("net.passage", "Relay"): "ClientBridge",
    ("net.questions", "Questions"): "ElicitationHandler",
    ("net.way", "Way"): "HttpRoute",
    ("net.way", "Ways"): "HttpRoutes",
    ("net.egress", "Visit"): "GuardedHttp",
    ("net.access", "Access"): "Credentials",
    ("core.known", "Known"): "CachedSnapshot",
    ("pins", "Memory"): "PinSource",
    ("pins", "Pins"): "LockEnforcer",
    ("config.pincache", "Recollection"): "SnapshotCache",
    ("core.admitted", "Admitted"): "ApprovedListing",
    ("core.exposure", "Exposure"): "VisibleTools",
    ("core.exposure", "Reveal"): "ShownSchemas",
    ("builtin", "Builtin"): "ResourceTools",
    ("auditing", "Auditing"): "AuditManager",
    ("callbacks", "InOrder"): "OrderedCallback",
    ("gateway.desk", "Desk"): "RequestHandlers",
    ("gateway.door", "Door"): "Authenticator",
    ("gateway.hub", "Hub"): "Subscriptions",
    ("gateway.crossing", "Crossing"): "EraBridge",
    ("gateway.parking", "Parked"): "SuspendedCall",
    ("gateway.parking", "Parking"): "SuspendedCalls",
    ("gateway.loudness", "Loudness"): "LogLevels",
    ("gateway.connections", "Crowd"): "ConnectionLimit",
    ("gateway.http", "Errand"): "RequestContext",
    ("gateway.views", "View"): "Profile",
    ("gateway.registry", "Registry"): "SessionRegistry",
    ("gateway.oldsse", "OldSse"): "LegacySse",
    ("gateway.stdio", "Pipe"): "StdioServer",
    ("net.lanes", "Lanes"): "EraConnections",
    ("net.attempts", "Attempts"): "ConnectHistory",
    ("net.states", "States"): "StateReporter",
    ("net.relisting", "Relisting"): "Relister",
    ("net.notices", "Notices"): "NotificationRouter",
    ("net.watching", "Watching"): "ResourceSubscriptions",
    ("net.rpc", "Channel"): "Transport",
    ("net.duplex", "DuplexChannel"): "DuplexTransport",
    ("net.http", "HttpChannel"): "HttpTransport",
    ("net.oldsse", "SseChannel"): "SseTransport",
    ("net.stdio", "StdioChannel"): "StdioTransport",
    ("core.inverted", "Inverted"): "InvertedIndex",
    ("sessions", "Sessions"): "SessionManager",
    ("sessions", "Harbour"): "SessionHost",
    ("sessions", "Private"): "PrivateConnections",
    ("session", "Shore"): "Runtime",
    ("store.outputs", "Outputs"): "OutputStore",
    ("store.folder", "Folder"): "PrivateDirectory",
    ("cli.bar", "Bar"): "ProgressLine",
    ("cli.board", "Board"): "WatchBoard",
    ("cli.strays", "Stray"): "Orphan",
}

move("core.schema.dialects", "core.schema.notes", "core.schema.describe", "core.schema.dialects", doc="What each dialect of JSON Schema takes, as data, and notes on what was changed.")
move("core.schema.read", "core.schema.refs", "core.schema.facets", "core.schema.read", doc="A server's JSON Schema read into a `Shape`: references followed, unions and intersections resolved.")
move("core.schema.shapes", "core.schema.limits", "core.schema.shapes", doc="What a schema means, in one form, and bounds on its size.")

RENAMES.update({
    ("approval", "PATIENCE"): "ANSWER_TIMEOUT",
    ("trust", "PATIENCE"): "ANSWER_TIMEOUT",
    ("core.untrusted", "clean"): "clean_for_model",
    ("config.fields", "_unknown"): "_unknown_field",
    ("core.changetext", "_difference"): "_difference_text",
    ("core.pinrows", "write"): "write_rows",
    ("core.pinrows", "read"): "read_rows",
    ("core.prepared", "write"): "write_prepared",
    ("core.prepared", "read"): "read_prepared",
    ("config.lockfile", "write"): "save_lock",
    ("config.lockfile", "read"): "load_lock",
    ("config.lockfile", "_log"): "log",
    ("config.pincache", "_log"): "log",
    ("config.pincache", "_FORMAT"): "_CACHE_FORMAT",
    ("net.lineage", "_owner"): "_marked_by",
    ("net.dialogue", "Answer"): "AnswerInput",
    ("gateway.batch", "VERSION"): "BATCH_VERSION",
    ("cli.bar", "_TICK"): "_LINE_TICK",
})
# Text replaced before anything else, so that parts fit together.
PATCHES = [
    ("core.lock", " = field(default_factory", " = dataclass_field(default_factory"),
    ("core.lock", "from dataclasses import dataclass, field", "from dataclasses import dataclass\nfrom dataclasses import field as dataclass_field"),
    ("offer", "from mooring.core.config import HostConfig, ServerConfig, Style\n", "from mooring.core.config import HostConfig, ServerConfig\nfrom mooring.core.names import Style\n"),
]

move("local", "signatures", "local", doc="Python functions as tools, and the contract for everything else that offers tools.")
move("transport.subreaper", "net.subreaper")
move("transport.subreaper_client", "net.supervisor")
