-- The number of contents that so many guests hold that no pairs are made of them.
WITH per_content AS (SELECT fingerprint, COUNT(*) AS guests FROM samples WHERE copies > 0 GROUP BY fingerprint)
SELECT COUNT(*) AS contents FROM per_content CROSS JOIN settings WHERE guests > popular_above
