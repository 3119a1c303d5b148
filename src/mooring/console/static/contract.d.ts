// Types of the API, as docs/console-api.md describes it.

export interface Server {
  id: string;
  state: string;
  label: string;
  reason: string | null;
  next: string | null;
  transport: string;
  protocol: string | null;
  era: string | null;
  tools: number;
  resources: number;
  prompts: number;
  skills: number;
  hidden: number;
  tokens: number;
  connected_at: number | null;
  fresh_within: number | null;
  retry_at: number | null;
  breaker: string | null;
  restarts: number;
  running: number;
  waiting: number;
  processes: number;
  calls: number;
  errors: number;
  error_rate: number | null;
  p50: number | null;
  p95: number | null;
  rate: number;
  trips: (number | null)[];
  file: string | null;
  scope: string | null;
  login: boolean;
  held: boolean;
  changes: number;
}

export interface Tool {
  id: string;
  name: string | null;
  server: string;
  remote: string;
  title: string | null;
  summary: string;
  tokens: number;
  hints: string[];
  policy: string;
  pinned: boolean;
  shown: string;
  hidden: { by: string; reason: string } | null;
  app: boolean;
  verb: string | null;
}

export interface Call {
  id: string;
  server: string;
  tool: string;
  session: string | null;
  principal: string | null;
  script: string | null;
  started: number;
  ms: number | null;
  outcome: string;
  error: string | null;
  recorded: boolean;
}

export interface Script {
  id: string;
  session: string | null;
  state: string;
  started: number;
  ms: number | null;
  calls: number;
}

export interface WireMessage {
  id: string;
  time: number;
  server: string;
  way: string;
  kind: string;
  method: string | null;
  message_id: string | number | null;
  size: number;
  ms: number | null;
  preview: string;
}

export interface LogLine {
  id: string;
  time: number;
  level: string;
  server: string | null;
  text: string;
}

export interface Change {
  subject: string;
  name: string;
  kind: string;
  text: string;
  before: unknown;
  after: unknown;
}
export interface ServerChanges {
  id: string;
  revision: string;
  changes: Change[];
  findings: unknown[];
}

export interface InboxItem {
  id: string;
  kind: string;
  server: string | null;
  tool: string | null;
  session: string | null;
  title: string | null;
  text: string | null;
  reason: string | null;
  arguments: unknown;
  schema: unknown;
  mode: string | null;
  url: string | null;
  host: string | null;
  sensitive: unknown;
  asked: number;
  expires: number | null;
  state: string;
}

export interface Try {
  id: string;
  tool: string;
  server: string;
  arguments: string;
  started: number;
  ms: number | null;
  state: string;
  progress: { progress: number; total: number | null; message: string | null } | null;
  summary: string;
  blocks: number;
  app: boolean;
}

export interface Client {
  id: string;
  principal: string | null;
  profile: string;
  protocol: string | null;
  idle: number;
  running: number;
  stream: boolean;
}
export interface Profile {
  id: string;
  path: string;
  tools: number;
  tokens: number;
  discovery: string | boolean | null;
  servers: string[];
  allow: string[] | null;
  deny: string[] | null;
  scopes: string[] | null;
}
export interface Token {
  id: string;
  state: string;
  scopes: string[];
  profiles: string[] | null;
  created: number | null;
  expires: number | null;
  last_used: number | null;
}

export interface Totals {
  servers: number;
  connected: number;
  pending: number;
  failed: number;
  needs_auth: number;
  disabled: number;
  tools: number;
  hidden: number;
  resources: number;
  prompts: number;
  tokens: number;
  shown_tokens: number;
  discovery_used: boolean;
  inbox: number;
  changes: number;
  clients: number;
}

export interface TopTool {
  tool: string;
  server: string;
  calls: number;
  errors: number;
  error_rate: number | null;
  p50: number | null;
  p95: number | null;
}

export interface Activity {
  running: number;
  finished: number;
  errors: number;
  denied: number;
  error_rate: number | null;
  p50: number | null;
  p95: number | null;
  rate: number;
  top: TopTool[];
}

export interface Values {
  about: {
    version: string;
    started: number;
    kind: string;
    style: string;
    discovery: string;
    scripts: boolean;
    lock: string | null;
    files: { file: string; scope: string; writable: boolean }[];
  };
  first_run: boolean;
  totals: Totals;
  activity: Activity;
  wire: { on: boolean; messages: number; dropped: number };
  warnings: { file: string | null; server: string | null; field: string | null; message: string }[];
  gateway: null | {
    url: string;
    open: boolean;
    draining: boolean;
    sessions: number;
    limits: Record<string, number | null>;
    connections: number;
  };
  cluster: null | { nodes: Record<string, unknown>[]; owners: Record<string, unknown>[]; problem?: string };
}

export interface Tables {
  servers: Server;
  tools: Tool;
  calls: Call;
  scripts: Script;
  wire: WireMessage;
  log: LogLine;
  changes: ServerChanges;
  inbox: InboxItem;
  tries: Try;
  clients: Client;
  profiles: Profile;
  tokens: Token;
}

export interface Snapshot {
  epoch: string;
  rev: number;
  time: number;
  values: Values;
  tables: { [T in keyof Tables]: Tables[T][] };
  limits: Record<string, number>;
}

export type Op = ["set", string, any] | ["put", string, any] | ["del", string, string];

export interface Block {
  type: string;
  text?: string;
  data?: string;
  mime_type?: string;
  uri?: string;
  name?: string;
  title?: string;
}

export interface Result {
  id: string;
  tool: string;
  server: string;
  arguments: unknown;
  state: string;
  ms: number;
  is_error: boolean;
  text: string;
  blocks: Block[];
  structured: unknown;
  raw: unknown;
  error: null | { kind: string; message: string; next: string | null };
  handle: unknown;
}

export interface ToolDetail {
  name: string | null;
  server: string;
  remote_name: string;
  title: string | null;
  description: string;
  signature: string;
  input_schema: unknown;
  output_schema: unknown;
  annotations: unknown;
  meta: unknown;
  tokens: number;
  pinned: boolean;
  policy: string;
  policy_reason: string | null;
  shown: string;
  profiles: string[];
  hidden: { by: string; reason: string } | null;
  app: boolean;
  icons: { src?: string; mimeType?: string; mime_type?: string }[] | null;
  command: string;
}

export interface ServerDetail {
  name: string;
  config: unknown;
  info: unknown;
  instructions: string | null;
  stderr: string[];
  warnings: unknown[];
  hidden: unknown[];
  extensions: unknown;
  reason: string | null;
}

export interface EditAnswer {
  files: { file: string; scope: string; new: boolean; diff: string }[];
  notes: string[];
  revision: string;
  written: boolean;
  backups: string[];
}

export interface SettingRow {
  path: string[];
  value: unknown;
  file: string | null;
  line: number | null;
  scope: string | null;
  effective: boolean;
  default: unknown;
}

export interface Program {
  program: string;
  title: string;
  file: string;
  error: string | null;
  servers: { name: string; action: string; reason: string | null; notes: string[]; entry: unknown }[];
}

export interface SearchAnswer {
  hits: { name: string; server: string; score: number; why: string[]; description: string; tokens: number }[];
  answer: unknown;
  tokens: { all: number; first: number; answer: number };
}

export interface Session {
  csrf: string | null;
  principal: string;
  sandbox: string | null;
  version: string;
}
