"""The audit file: a chained record of all requests, its writer, its reader and its verification."""

from evenhand.server.telemetry.audit.file import key_from, read_audit, rotated_files
from evenhand.server.telemetry.audit.log import AuditLog
from evenhand.server.telemetry.audit.verify import ChainState, newest_file, verify_audit

__all__ = ["AuditLog", "ChainState", "key_from", "newest_file", "read_audit", "rotated_files", "verify_audit"]
