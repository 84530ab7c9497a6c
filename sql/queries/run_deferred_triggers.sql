-- Purpose: let deferred triggers of the target act now and not at COMMIT, so that what they do can be looked at.
-- Parameters: none. Locks: what the triggers take. Safe to run twice: the second time nothing is deferred.
SET CONSTRAINTS ALL IMMEDIATE
