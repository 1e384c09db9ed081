BEGIN TRANSACTION;
CREATE TABLE alembic_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "alembic_version" VALUES('0006_turns');
CREATE TABLE batches (
	number INTEGER NOT NULL, 
	id VARCHAR(64) NOT NULL, 
	owner VARCHAR(200) NOT NULL, 
	endpoint VARCHAR(64) NOT NULL, 
	input_file_id VARCHAR(64) NOT NULL, 
	window VARCHAR(32) NOT NULL, 
	status VARCHAR(16) NOT NULL, 
	created_unix_s FLOAT NOT NULL, 
	expires_unix_s FLOAT NOT NULL, 
	fingerprint VARCHAR(64) NOT NULL, 
	details JSON NOT NULL, 
	model VARCHAR(200), 
	errors JSON, 
	output_file_id VARCHAR(64), 
	error_file_id VARCHAR(64), 
	total INTEGER NOT NULL, 
	completed INTEGER NOT NULL, 
	failed INTEGER NOT NULL, 
	tokens BIGINT NOT NULL, 
	output_tokens BIGINT NOT NULL, 
	cached_tokens BIGINT NOT NULL, 
	not_run INTEGER NOT NULL, 
	swept BOOLEAN NOT NULL, 
	in_progress_unix_s FLOAT, 
	finalizing_unix_s FLOAT, 
	completed_unix_s FLOAT, 
	failed_unix_s FLOAT, 
	expired_unix_s FLOAT, 
	cancelling_unix_s FLOAT, 
	cancelled_unix_s FLOAT, 
	PRIMARY KEY (number), 
	UNIQUE (id)
);
INSERT INTO "batches" VALUES(1,'batch_aaaaaaaaaaaaaaaaaaaaaaaa','acme','/v1/embeddings','file-in1','24h','completed',1799990000.0,1800076400.0,'batch_aaaaaaaaaaaaaaaaaaaaaaaa','{"output_id": "file-out-batch_aaaaaaaaaaaaaaaaaaaaaaaa", "error_id": "file-err-batch_aaaaaaaaaaaaaaaaaaaaaaaa", "output_expires_s": 86400.0, "metadata": {"a": "b"}, "models": []}','m','null','file-out-batch_aaaaaaaaaaaaaaaaaaaaaaaa',NULL,2,2,0,0,0,0,0,0,1800000000.0,1800000000.0,1800000000.0,NULL,NULL,NULL,NULL);
INSERT INTO "batches" VALUES(2,'batch_bbbbbbbbbbbbbbbbbbbbbbbb','acme','/v1/embeddings','file-in2','24h','in_progress',1799990000.0,1800076400.0,'batch_bbbbbbbbbbbbbbbbbbbbbbbb','{"output_id": "file-out-batch_bbbbbbbbbbbbbbbbbbbbbbbb", "error_id": "file-err-batch_bbbbbbbbbbbbbbbbbbbbbbbb", "output_expires_s": 86400.0, "metadata": {"a": "b"}, "models": []}','m','null',NULL,NULL,2,0,0,0,0,0,0,0,1800000000.0,NULL,NULL,NULL,NULL,NULL,NULL);
CREATE TABLE claims (
	name VARCHAR(32) NOT NULL, 
	owner VARCHAR(64) NOT NULL, 
	shown VARCHAR(200) NOT NULL, 
	place VARCHAR(200) NOT NULL, 
	process INTEGER NOT NULL, 
	seen_unix_s FLOAT NOT NULL, 
	PRIMARY KEY (name)
);
CREATE TABLE deliveries (
	number INTEGER NOT NULL, 
	id VARCHAR(64) NOT NULL, 
	owner VARCHAR(200) NOT NULL, 
	kind VARCHAR(64) NOT NULL, 
	subject VARCHAR(64) NOT NULL, 
	webhook VARCHAR(200) NOT NULL, 
	url TEXT NOT NULL, 
	target VARCHAR(300) NOT NULL, 
	body TEXT NOT NULL, 
	created_unix_s FLOAT NOT NULL, 
	due_unix_s FLOAT NOT NULL, 
	attempts INTEGER NOT NULL, 
	state VARCHAR(16) NOT NULL, 
	told TEXT NOT NULL, 
	PRIMARY KEY (number), 
	UNIQUE (id)
);
CREATE TABLE files (
	number INTEGER NOT NULL, 
	id VARCHAR(64) NOT NULL, 
	owner VARCHAR(200) NOT NULL, 
	filename VARCHAR(300) NOT NULL, 
	purpose VARCHAR(32) NOT NULL, 
	bytes BIGINT NOT NULL, 
	sha256 VARCHAR(64) NOT NULL, 
	status VARCHAR(16) NOT NULL, 
	created_unix_s FLOAT NOT NULL, 
	expires_unix_s FLOAT, 
	PRIMARY KEY (number), 
	UNIQUE (id)
);
INSERT INTO "files" VALUES(1,'file-in1','acme','in0.jsonl','batch',100,'0000000000000000000000000000000000000000000000000000000000000000','processed',1799990000.0,NULL);
INSERT INTO "files" VALUES(2,'file-in2','acme','in1.jsonl','batch',100,'0000000000000000000000000000000000000000000000000000000000000000','processed',1799990000.0,NULL);
INSERT INTO "files" VALUES(3,'file-out-batch_aaaaaaaaaaaaaaaaaaaaaaaa','acme','o.jsonl','batch_output',10,'0000000000000000000000000000000000000000000000000000000000000000','processed',1800000000.0,NULL);
CREATE TABLE job_notes (
	number INTEGER NOT NULL, 
	job_id VARCHAR(64) NOT NULL, 
	at_unix_s FLOAT NOT NULL, 
	text TEXT NOT NULL, 
	PRIMARY KEY (number), 
	FOREIGN KEY(job_id) REFERENCES jobs (id)
);
INSERT INTO "job_notes" VALUES(1,'job-0123456789ab',1800000000.0,'m over a.parquet to /data/out-1');
CREATE TABLE jobs (
	number INTEGER NOT NULL, 
	id VARCHAR(64) NOT NULL, 
	settings JSON NOT NULL, 
	state VARCHAR(16) NOT NULL, 
	reason TEXT NOT NULL, 
	progress JSON, 
	owner VARCHAR(200) NOT NULL, 
	created_unix_s FLOAT NOT NULL, 
	updated_unix_s FLOAT NOT NULL, due_unix_s FLOAT, 
	PRIMARY KEY (number), 
	UNIQUE (id)
);
INSERT INTO "jobs" VALUES(1,'job-0123456789ab','{"inputs": ["a.parquet"], "output": "/data/out-1", "model": "m", "text": "text", "pair": null, "prompt_name": null, "columns": [], "types": {}, "prompt": null, "system": null, "max_tokens": 256, "temperature": 0.0, "top_p": 1.0, "seed": null, "stop": [], "json_schema": null, "keep": [], "endpoint": null, "input_format": null, "output_format": "parquet", "precision": null, "trust_pickle": false, "shard_rows": null, "shard_seconds": 30.0, "device": "auto", "threads": null, "workers": 1, "engine": "local", "address": null, "resources": {}, "max_errors": null, "window": null, "due_unix_s": null, "price_usd_per_hour": null, "weight": 1.0, "hours": null, "max_live_load": null, "notify": [], "grace_seconds": 30.0, "load_seconds": 1800.0, "lease_seconds": 300.0}','done','','null','acme',1799990000.0,1800000000.0,NULL);
INSERT INTO "jobs" VALUES(2,'job-aaaaaaaaaaaa','{"inputs": ["a.jsonl"], "output": "/data/out-2", "model": "m", "text": null, "pair": null, "prompt_name": null, "columns": [], "types": {}, "prompt": null, "system": null, "max_tokens": 256, "temperature": 0.0, "top_p": 1.0, "seed": null, "stop": [], "json_schema": null, "keep": [], "endpoint": null, "input_format": null, "output_format": "jsonl", "precision": null, "trust_pickle": false, "shard_rows": null, "shard_seconds": 30.0, "device": "auto", "threads": null, "workers": 1, "engine": "local", "address": null, "resources": {}, "max_errors": null, "window": "2h", "due_unix_s": null, "price_usd_per_hour": null, "weight": 1.0, "hours": null, "max_live_load": null, "notify": [], "grace_seconds": 30.0, "load_seconds": 1800.0, "lease_seconds": 300.0}','queued','waits','null','acme',1799990000.0,1799990000.0,1799997200.0);
INSERT INTO "jobs" VALUES(3,'batch_aaaaaaaaaaaaaaaaaaaaaaaa','{"inputs": ["/files/file-in1"], "output": "/files/batches/batch_aaaaaaaaaaaaaaaaaaaaaaaa", "model": "m", "text": null, "pair": null, "prompt_name": null, "columns": [], "types": {}, "prompt": null, "system": null, "max_tokens": 256, "temperature": 0.0, "top_p": 1.0, "seed": null, "stop": [], "json_schema": null, "keep": [], "endpoint": "/v1/embeddings", "input_format": "jsonl", "output_format": "lines", "precision": null, "trust_pickle": false, "shard_rows": null, "shard_seconds": 30.0, "device": "auto", "threads": null, "workers": 1, "engine": "local", "address": null, "resources": {}, "max_errors": null, "window": null, "due_unix_s": 1800076400.0, "price_usd_per_hour": null, "weight": 1.0, "hours": null, "max_live_load": null, "notify": [], "grace_seconds": 30.0, "load_seconds": 1800.0, "lease_seconds": 300.0}','done','','null','acme',1799990000.0,1800000000.0,1800076400.0);
INSERT INTO "jobs" VALUES(4,'batch_bbbbbbbbbbbbbbbbbbbbbbbb','{"inputs": ["/files/file-in2"], "output": "/files/batches/batch_bbbbbbbbbbbbbbbbbbbbbbbb", "model": "m", "text": null, "pair": null, "prompt_name": null, "columns": [], "types": {}, "prompt": null, "system": null, "max_tokens": 256, "temperature": 0.0, "top_p": 1.0, "seed": null, "stop": [], "json_schema": null, "keep": [], "endpoint": "/v1/embeddings", "input_format": "jsonl", "output_format": "lines", "precision": null, "trust_pickle": false, "shard_rows": null, "shard_seconds": 30.0, "device": "auto", "threads": null, "workers": 1, "engine": "local", "address": null, "resources": {}, "max_errors": null, "window": null, "due_unix_s": 1800076400.0, "price_usd_per_hour": null, "weight": 1.0, "hours": null, "max_live_load": null, "notify": [], "grace_seconds": 30.0, "load_seconds": 1800.0, "lease_seconds": 300.0}','running','','{"rows": 1, "errors": 0}','acme',1799990000.0,1800000000.0,1800076400.0);
CREATE TABLE notices (
	number INTEGER NOT NULL, 
	owner VARCHAR(200) NOT NULL, 
	kind VARCHAR(64) NOT NULL, 
	subject VARCHAR(64) NOT NULL, 
	data JSON NOT NULL, 
	at_unix_s FLOAT NOT NULL, 
	named JSON NOT NULL, 
	PRIMARY KEY (number)
);
INSERT INTO "notices" VALUES(1,'acme','job.completed','job-0123456789ab','{"id": "job-0123456789ab", "object": "job", "state": "done", "reason": "", "model": "m", "output": "/data/out-1", "created_at": 1799990000.0, "ended_at": 1800000000.0, "progress": null}',1800000000.0,'[]');
INSERT INTO "notices" VALUES(2,'acme','batch.completed','batch_aaaaaaaaaaaaaaaaaaaaaaaa','{"id": "batch_aaaaaaaaaaaaaaaaaaaaaaaa", "object": "batch", "status": "completed", "model": "m", "endpoint": "/v1/embeddings", "request_counts": {"total": 2, "completed": 2, "failed": 0}, "output_file_id": "file-out-batch_aaaaaaaaaaaaaaaaaaaaaaaa", "error_file_id": null}',1.79485320800557518004e+09,'[]');
CREATE TABLE schedule_runs (
	number INTEGER NOT NULL, 
	id VARCHAR(64) NOT NULL, 
	schedule_id VARCHAR(64) NOT NULL, 
	"key" VARCHAR(500) NOT NULL, 
	due_unix_s FLOAT NOT NULL, 
	state VARCHAR(16) NOT NULL, 
	output TEXT NOT NULL, 
	reason TEXT NOT NULL, 
	PRIMARY KEY (number), 
	UNIQUE (schedule_id, "key"), 
	UNIQUE (id), 
	FOREIGN KEY(schedule_id) REFERENCES schedules (id)
);
CREATE TABLE schedules (
	id VARCHAR(64) NOT NULL, 
	owner VARCHAR(200) NOT NULL, 
	name VARCHAR(64) NOT NULL, 
	spec JSON NOT NULL, 
	created_unix_s FLOAT NOT NULL, 
	since_unix_s FLOAT NOT NULL, 
	marker VARCHAR(500) NOT NULL, 
	is_paused BOOLEAN NOT NULL, 
	problem TEXT NOT NULL, 
	PRIMARY KEY (id), 
	UNIQUE (owner, name)
);
CREATE TABLE usage_days (
	day VARCHAR(10) NOT NULL, 
	tenant TEXT NOT NULL, 
	lane VARCHAR(16) NOT NULL, 
	model TEXT NOT NULL, 
	writer VARCHAR(32) NOT NULL, 
	rows BIGINT NOT NULL, 
	tokens BIGINT NOT NULL, 
	device_s DOUBLE NOT NULL, 
	harvested_s DOUBLE NOT NULL, 
	usd DOUBLE, 
	unpriced_s DOUBLE NOT NULL, 
	PRIMARY KEY (day, tenant, lane, model, writer)
);
CREATE INDEX ix_jobs_state ON jobs (state);
CREATE INDEX job_notes_by_job ON job_notes (job_id, number);
CREATE INDEX ix_files_expires_unix_s ON files (expires_unix_s);
CREATE INDEX ix_files_status ON files (status);
CREATE INDEX files_by_owner ON files (owner, number);
CREATE INDEX ix_batches_status ON batches (status);
CREATE INDEX ix_batches_input_file_id ON batches (input_file_id);
CREATE INDEX ix_batches_fingerprint ON batches (fingerprint);
CREATE INDEX ix_batches_swept ON batches (swept);
CREATE INDEX batches_by_owner ON batches (owner, number);
CREATE INDEX ix_schedule_runs_state ON schedule_runs (state);
CREATE INDEX ix_deliveries_owner ON deliveries (owner);
CREATE INDEX deliveries_by_due ON deliveries (state, due_unix_s);
CREATE INDEX jobs_by_turn ON jobs (state, owner, due_unix_s, number);
COMMIT;
